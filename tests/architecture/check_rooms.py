#!/usr/bin/env python3
"""Who may include whom. usage: check_rooms.py [ROOT]

The tables below are the rule; docs/architecture.md explains it, and the link lines of CMakeLists.txt must say the same.
"""

import re
import sys

from source_tree import CPP, files, line_of, read, report, root_from_arguments, without_comments

# room: the rooms that it may include, besides itself
MAY_INCLUDE = {
    "base": [],
    "planning": ["base"],
    "tensors": ["base"],
    "kernels": ["base", "tensors"],
    "collectives": ["base", "planning", "tensors", "kernels"],
    "models": ["base", "planning", "tensors", "kernels", "collectives"],
    "runtime": ["base", "planning", "tensors", "kernels", "collectives", "models"],
    "serving": ["base", "runtime"],
    "cli": ["base", "planning", "runtime", "serving"],
}
# (from, to): the only headers of `to` that `from` may see
ONLY_HEADERS = {("models", "collectives"): ["boundary.h"], ("serving", "runtime"): ["engine.h"]}

# A library's headers, and the only places below lockstep/ that may include them.
LIBRARIES = [
    (r"nlohmann/", ["base/json.h"]),
    (r"spdlog/", ["base/log.cc"]),
    (r"boost/", ["serving/"]),
    (r"openssl/", ["serving/"]),
    (r"pcre2", ["serving/tokenizer/", "models/quantization/"]),
    (r"utf8proc", ["serving/tokenizer/", "serving/chat_template/"]),
    (r"(xgrammar|dlpack)/", ["serving/constraints/"]),
    (r"CLI/", ["cli/"]),
    (r"hwy/", ["kernels/"]),
    (r"mpi\.h", ["collectives/mpi/"]),
    (r"nccl", ["collectives/nccl/", "collectives/onesided/"]),
    (r"cu(da|blas|tlass|b/)", ["kernels/cuda/", "collectives/nccl/", "collectives/onesided/", "runtime/graphs/"]),
    (r"(gtest|gmock|benchmark|rapidcheck)", []),
]
# planning is pure: the same answer on every host, at every time
IMPURE = ["atomic", "chrono", "condition_variable", "ctime", "filesystem", "fstream", "future", "iostream", "mutex",
          "random", "semaphore", "shared_mutex", "stop_token", "thread", "time.h", "unistd.h"]
FORBIDDEN_FOLDERS = {"utils", "util", "common", "misc", "helpers", "helper"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)


def _own(room, target, header):
    if target not in MAY_INCLUDE:
        return f"there is no room called {target}"
    if target == room:
        return None
    if target not in MAY_INCLUDE[room]:
        return f"{room} may not include {target}"
    only = ONLY_HEADERS.get((room, target))
    if only is not None and header not in only:
        return f"{room} may see only {', '.join(only)} of {target}"
    return None


def _library(place, room, header):
    for pattern, places in LIBRARIES:
        if re.match(pattern, header) and not any(place == p or (p.endswith("/") and place.startswith(p)) for p in places):
            return f"<{header}> belongs to {' and '.join(places) or 'tests and benchmarks'} only"
    if room == "planning" and header in IMPURE:
        return f"planning is pure and may not include <{header}>"
    return None


def includes(path):
    """(line, quote, header) of every include that is not in a comment."""
    text = without_comments(read(path))
    return [(line_of(text, m.start()), m.group(1), m.group(2)) for m in INCLUDE.finditer(text)]


def check_includes(root):
    found = []
    for path in files(root, "lockstep", CPP):
        parts = path.relative_to(root / "lockstep").parts
        where = path.relative_to(root)
        if len(parts) < 2 or parts[0] not in MAY_INCLUDE:
            found.append(f"{where}:1: lies in no room; the rooms are {', '.join(MAY_INCLUDE)}")
            continue
        for line, quote, header in includes(path):
            wrong = None
            if header.startswith("lockstep/"):
                target, _, rest = header[len("lockstep/"):].partition("/")
                wrong = _own(parts[0], target, rest)
            elif quote == '"':
                wrong = f'"{header}": own headers are written from the root, "lockstep/room/…"'
            else:
                wrong = _library("/".join(parts), parts[0], header)
            if wrong:
                found.append(f"{where}:{line}: {wrong}")
    return found


def check_folders(root):
    found = []
    for top in ("lockstep", "tests", "benchmarks", "tools"):
        for path in files(root, top):
            relative = path.relative_to(root)
            for name in {*relative.parts[:-1], relative.stem} & FORBIDDEN_FOLDERS:
                found.append(f"{relative}:1: '{name}' says nothing; name it after what it holds")
    return found


def check_own_header_first(root):
    """foo.cc includes foo.h before all else, which is what proves that foo.h stands alone (see CMakeLists.txt here)."""
    found = []
    for path in files(root, "lockstep", {".cc"}):
        header = path.with_suffix(".h")
        if header.is_file():
            first = next(iter(includes(path)), (1, "", ""))
            wanted = str(header.relative_to(root))
            if first[2] != wanted:
                found.append(f'{path.relative_to(root)}:{first[0]}: the first include must be "{wanted}"')
    return found


def check_front_doors(root):
    """Every header begins with #pragma once and then says what it is. One that is included once for each instruction set
    (its name ends in -inl.h) has a guard of another kind and begins with the words."""
    found = []
    for path in files(root, "lockstep", {".h"}):
        lines = read(path).splitlines()
        if path.name.endswith("-inl.h"):
            lines = ["#pragma once", *lines]
        if not lines or lines[0] != "#pragma once":
            found.append(f"{path.relative_to(root)}:1: a header begins with #pragma once")
        elif len(lines) < 2 or not lines[1].startswith("//"):
            found.append(f"{path.relative_to(root)}:2: the second line of a header begins to say what it is: // …")
    return found


def check_links(root):
    """The rooms' link lines in CMakeLists.txt name exactly the rooms that the table allows."""
    path = root / "CMakeLists.txt"
    if not path.is_file():
        return []
    text = re.sub(r"#[^\n]*", "", read(path))
    found = []
    seen = set()
    for match in re.finditer(r"lockstep_room\(\s*(\w+)([^)]*)\)", text):
        room, words = match.group(1), match.group(2).split()
        seen.add(room)
        linked, keyword = set(), None
        for word in words:
            if word in ("DEPENDS", "INTERFACE_OF", "LIBS", "PRIVATE_LIBS"):
                keyword = word
            elif keyword in ("DEPENDS", "INTERFACE_OF"):
                linked.add(word)
        if linked != set(MAY_INCLUDE.get(room, [])):
            found.append(f"CMakeLists.txt:{line_of(text, match.start())}: {room} links {sorted(linked)}, "
                         f"but may include {sorted(MAY_INCLUDE.get(room, []))}")
    for room in MAY_INCLUDE:
        if room not in seen:
            found.append(f"CMakeLists.txt:1: there is no lockstep_room({room} …)")
    return found


def check(root):
    return [v for c in (check_includes, check_folders, check_own_header_first, check_front_doors, check_links)
            for v in c(root)]


if __name__ == "__main__":
    top = root_from_arguments()
    sys.exit(report(top, check(top), "rooms"))
