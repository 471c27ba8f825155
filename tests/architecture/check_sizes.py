#!/usr/bin/env python3
"""Small files. usage: check_sizes.py [ROOT]"""

import sys

from source_tree import files, read, report, root_from_arguments

LIMITS = {".h": 250, ".cc": 600, ".cu": 900, ".cuh": 900}
COLUMNS = 120
# path: (lines it may have, why). An entry that is no longer needed is itself an error.
EXCEPTIONS = {}


def check(root, exceptions=None):
    exceptions = EXCEPTIONS if exceptions is None else exceptions
    found, needed = [], set()
    for top in ("lockstep", "tests", "benchmarks"):
        for path in files(root, top, set(LIMITS)):
            relative = str(path.relative_to(root))
            lines = read(path).splitlines()
            limit = LIMITS[path.suffix]
            if len(lines) > limit:
                needed.add(relative)
                limit = exceptions.get(relative, (limit, ""))[0]
            if len(lines) > limit:
                found.append(f"{relative}:{limit + 1}: {len(lines)} lines; at most {limit} are allowed")
    for relative in sorted(set(exceptions) - needed):
        found.append(f"{relative}:1: has an exception in check_sizes.py that it does not need")
    for path in files(root, suffixes={".md"}):
        for number, line in enumerate(read(path).splitlines(), 1):
            if len(line) > COLUMNS:
                found.append(f"{path.relative_to(root)}:{number}: {len(line)} columns; at most {COLUMNS} are allowed")
    return found


if __name__ == "__main__":
    top = root_from_arguments()
    sys.exit(report(top, check(top), "sizes"))
