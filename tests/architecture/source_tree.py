"""What every check of the tree uses: the files of a checkout, C++ text without comments, and how a check reports.

A check is a function of a root folder that gives lines "path:line: what is wrong". The tests of the checks plant
violations in a folder of their own and call the same functions.
"""

import pathlib
import re
import sys

SKIPPED = {".git", "build", "out", ".venv", ".cache", "__pycache__"}
CPP = {".h", ".cc", ".cu", ".cuh"}
TEXT = CPP | {".py", ".sh", ".md", ".cmake", ".txt", ".json", ".jinja", ".yml", ".svg", ""}


def files(root, below="", suffixes=None):
    """Paths below root/below, without what is built or hidden by the tools of version control."""
    top = root / below
    if not top.is_dir():
        return []
    found = []
    for path in sorted(top.rglob("*")):
        parts = path.relative_to(root).parts
        if not SKIPPED.intersection(parts) and path.is_file() and (suffixes is None or path.suffix in suffixes):
            found.append(path)
    return found


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'""", re.S)


def without_comments(text, keep_strings=True):
    """The same text with comments (and string contents, when asked) blanked; offsets and line numbers stay."""

    def blank(match):
        token = match.group(0)
        if keep_strings and token[0] in "\"'R":
            return token
        inner = re.sub(r"[^\n]", " ", token)
        return inner if token[0] == "/" else '"' + inner[2:] + '"'

    return _TOKEN.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def report(root, violations, name):
    """For the main() of a check: prints what is wrong, gives the exit status."""
    for violation in violations:
        print(violation)
    print(f"{name}: {len(violations)} violations in {root}" if violations else f"{name}: ok")
    return 1 if violations else 0


def root_from_arguments():
    return pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
