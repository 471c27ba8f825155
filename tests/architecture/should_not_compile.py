#!/usr/bin/env python3
"""Mistakes that the compiler must refuse. usage: should_not_compile.py ROOT COMPILER [FOLDER OF CASES]

A case is a .cc file with a line `// refused: PATTERN`. It must compile as it stands, and must not with
-DSHOULD_NOT_COMPILE; what the compiler then says must match the pattern, so that a case cannot fail for another reason.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys

from source_tree import read, report

FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]


def compile_case(root, compiler, case, *more):
    done = subprocess.run([compiler, *FLAGS, f"-I{root}", *more, str(case)], capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr


def check_case(root, compiler, case):
    pattern = re.search(r"^// refused: (.+)$", read(case), re.M)
    if not pattern:
        return f"{case}:1: has no line `// refused: PATTERN`"
    compiles, said = compile_case(root, compiler, case)
    if not compiles:
        return f"{case}:1: does not compile even without the mistake:\n{said}"
    compiles, said = compile_case(root, compiler, case, "-DSHOULD_NOT_COMPILE")
    if compiles:
        return f"{case}:1: compiles with the mistake"
    if not re.search(pattern.group(1), said):
        return f"{case}:1: is refused, but not with '{pattern.group(1)}':\n{said}"
    return None


def check(root, compiler, folder):
    cases = sorted(folder.glob("*.cc"))
    if not cases:
        return [f"{folder}:1: holds no case"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [v for v in pool.map(lambda case: check_case(root, compiler, case), cases) if v]


if __name__ == "__main__":
    top = pathlib.Path(sys.argv[1])
    where = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else pathlib.Path(__file__).parent / "should_not_compile"
    sys.exit(report(top, check(top, sys.argv[2], where), "should_not_compile"))
