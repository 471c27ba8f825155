#!/usr/bin/env python3
"""What the pages promise is there: links, make goals, paths and, with the program at hand, its flags.
usage: check_docs.py [ROOT [PATH OF lockstep]]
"""

import pathlib
import re
import subprocess
import sys

from source_tree import files, line_of, read, report, root_from_arguments

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
SPAN = re.compile(r"`([^`\n]+)`")
GOAL = re.compile(r"(?<![\w-])make((?: +[a-z][a-z-]*)+)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
PATH = re.compile(r"(?<![\w./-])(?:lockstep|tests|tools|docs|cmake|models|benchmarks)/[\w./-]*[\w/]")


def pages(root):
    return files(root, suffixes={".md"})


def code_pieces(text):
    """(offset, piece) of every command or name that a page sets as code: lines of fences, and spans."""
    return sorted(_code_pieces(text))


def _code_pieces(text):
    inside = []
    for fence in FENCE.finditer(text):
        inside.append(fence.span())
        body = fence.group(1)
        joined = re.sub(r"\\\n", lambda m: "  ", body)  # a command over several lines is one
        offset = fence.start(1)
        for line in joined.splitlines(keepends=True):
            yield offset, line.strip()
            offset += len(line)
    for span in SPAN.finditer(text):
        if not any(a <= span.start() < b for a, b in inside):
            yield span.start(), span.group(1).strip()


def anchors(path):
    """GitHub's anchors of a page's headings."""
    text = FENCE.sub("", read(path))
    names = re.findall(r"^#+ +(.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", n.replace("`", "").lower()).strip().replace(" ", "-") for n in names}


def check_links(root):
    found = []
    for page in pages(root):
        text = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), read(page))
        for match in LINK.finditer(text):
            target, _, anchor = match.group(1).partition("#")
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            where = f"{page.relative_to(root)}:{line_of(text, match.start())}"
            to = (page.parent / target).resolve() if target else page
            if not to.exists():
                found.append(f"{where}: the link to {match.group(1)} leads nowhere")
            elif anchor and to.suffix == ".md" and anchor not in anchors(to):
                found.append(f"{where}: {target or page.name} has no heading #{anchor}")
    return found


def check_goals(root):
    makefile = root / "Makefile"
    goals = set(re.findall(r"^([a-zA-Z][\w-]*):", read(makefile), re.M)) if makefile.is_file() else set()
    found = []
    for page in pages(root):
        text = read(page)
        for offset, piece in code_pieces(text):
            for match in GOAL.finditer(piece):
                for goal in match.group(1).split():
                    if goal not in goals:
                        found.append(f"{page.relative_to(root)}:{line_of(text, offset)}: the Makefile has no goal {goal}")
    return found


def check_paths(root):
    """Files and folders that a page names in code exist (a name with a placeholder in capitals does not count)."""
    found = []
    for page in pages(root):
        text = read(page)
        for offset, piece in code_pieces(text):
            for match in PATH.finditer(piece):
                name = match.group(0)
                after = piece[match.end():match.end() + 1]
                if re.search(r"[A-Z]{3}", name) or after in "*<{…" and after:
                    continue
                if not any((base / name).exists() for base in (root, page.parent)):
                    found.append(f"{page.relative_to(root)}:{line_of(text, offset)}: there is no {name}")
    return found


def check_families(root):
    """README names every family of the registry."""
    registry, readme = root / "lockstep/models/registry.cc", root / "README.md"
    if not registry.is_file():
        return []
    named = {piece for _, piece in code_pieces(read(readme))}
    families = re.findall(r'^\s*\{"([\w.]+)", *\w+', read(registry), re.M)
    return [f"README.md:1: the family {family} is not named (`{family}`)" for family in families if family not in named]


def is_ours(piece):
    """Is this piece of code a command line of lockstep, or a flag on its own?"""
    words = [w for w in piece.lstrip("$ ").split() if not re.match(r"[A-Z_]+=", w)]
    return bool(words) and (words[0].startswith("--") or pathlib.PurePath(words[0]).name == "lockstep")


def help_of(program, *words):
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{program} {' '.join(words)} --help ended with {done.returncode}: {done.stderr}")
    return done.stdout


def helps_of(program):
    """The help page of the program ("") and of each of its commands."""
    top = help_of(program)
    listed = re.search(r"^\w*(?:sub)?commands:?\n((?:[ \t]+\S.*\n|\n)+)", top, re.M | re.I)
    commands = re.findall(r"^[ \t]{1,4}([a-z][\w-]*)\b", listed.group(1), re.M) if listed else []
    return {"": top, **{c: help_of(program, c) for c in commands}}


def flag_groups(page):
    """The flags of a help page, each with its other names: [["--tp-size", "--tp"], …]."""
    lines = re.findall(r"^[ \t]+((?:-\w,)?--[a-z][\w-]*(?:,--?[a-z][\w-]*)*)", page, re.M)
    return [FLAG.findall(line) for line in lines]


def check_flags(root, helps):
    """Flags on pages exist, and each flag of `lockstep serve` is on a page by one of its names."""
    flags = {flag for page in helps.values() for group in flag_groups(page) for flag in group}
    found = []
    for page in pages(root):
        text = read(page)
        for offset, piece in code_pieces(text):
            if is_ours(piece):
                for flag in FLAG.findall(piece):
                    if flag not in flags:
                        found.append(f"{page.relative_to(root)}:{line_of(text, offset)}: lockstep has no flag {flag}")
    named = {flag for page in pages(root) for flag in FLAG.findall(read(page))}
    for group in flag_groups(helps.get("serve", "")):
        if group != ["--help"] and not named.intersection(group):
            found.append(f"README.md:1: no page names the flag {group[0]} of lockstep serve")
    return found


def check(root, program=None):
    found = [v for c in (check_links, check_goals, check_paths, check_families) for v in c(root)]
    if program:
        found += check_flags(root, helps_of(program))
    return found


if __name__ == "__main__":
    top = root_from_arguments()
    sys.exit(report(top, check(top, sys.argv[2] if len(sys.argv) > 2 else None), "docs"))
