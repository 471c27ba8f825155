#!/usr/bin/env python3
"""Each check finds what is planted for it, at its line, and nothing in a clean tree. usage: test_checks.py"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import check_docs
import check_rooms
import check_sizes
import check_text
import should_not_compile

COMPILER = os.environ.get("CXX", "g++")

CLEAN = {
    "CMakeLists.txt": "".join(
        f"lockstep_room({room} DEPENDS {' '.join(r for r in may if (room, r) != ('serving', 'runtime'))}"
        f"{' INTERFACE_OF runtime LIBS Boost::headers' if room == 'serving' else ''})\n"
        for room, may in check_rooms.MAY_INCLUDE.items()),
    "Makefile": "run: ## serve\n\t@true\n",
    "README.md": "# Lockstep\n\n`make run`, then [look](docs/a.md#two-words) at `lockstep/base/check.h`.\n",
    "docs/a.md": "# A\n\n## Two words\n\n```\n$ PORT=1 build/bin/lockstep serve \\\n  --model models/m\n```\n",
    "models/m/config.json": "{}\n",
    "lockstep/base/check.h": "#pragma once\n// Checks.\n",
    "lockstep/base/check.cc": '#include "lockstep/base/check.h"\n\n#include <string>\n',
    "lockstep/base/json.h": "#pragma once\n// JSON.\n#include <nlohmann/json.hpp>\n",
    "lockstep/collectives/boundary.h": '#pragma once\n// Edges.\n#include "lockstep/planning/plan.h"\n',
    "lockstep/planning/plan.h": "#pragma once\n// A plan.\n#include <vector>\n",
    "lockstep/models/moe.cc": '#include "lockstep/collectives/boundary.h"\n// every rank\nint q_lora_rank_of(int frank);\n',
    "lockstep/runtime/engine.h": "#pragma once\n// The front door.\n",
    "lockstep/serving/http/server.cc": '#include <boost/asio.hpp>\n\n#include "lockstep/runtime/engine.h"\n',
    "lockstep/serving/tokenizer/bpe.cc": "#include <pcre2.h>\n",
}


class Tree:
    """A small checkout: the clean one, with some files replaced."""

    def __init__(self, planted=None):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for name, text in {**CLEAN, **(planted or {})}.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def __enter__(self):
        return self.root

    def __exit__(self, *_):
        self.folder.cleanup()


class Planted(unittest.TestCase):
    def clean(self, check):
        with Tree() as root:
            self.assertEqual(check(root), [])

    def finds(self, check, path, text, *expected, replaces=None):
        """With `text` at `path` the check gives exactly the expected beginnings, in any order."""
        with Tree({path: text, **(replaces or {})}) as root:
            found = check(root)
        self.assertEqual(len(found), len(expected), found)
        for want in expected:
            self.assertTrue(any(f.startswith(want) for f in found), f"{want} is not among {found}")


class Rooms(Planted):
    def test_clean(self):
        self.clean(check_rooms.check)

    def test_room_that_may_not_be_seen(self):
        for room, other in (("planning", "tensors"), ("base", "planning"), ("serving", "planning"), ("kernels", "planning"),
                            ("cli", "models"), ("models", "runtime"), ("tensors", "kernels")):
            self.finds(check_rooms.check, f"lockstep/{room}/x.cc", f'\n#include "lockstep/{other}/y.h"\n',
                       f"lockstep/{room}/x.cc:2: {room} may not include {other}")

    def test_only_headers(self):
        self.finds(check_rooms.check, "lockstep/models/x.cc", '#include "lockstep/collectives/communicator.h"\n',
                   "lockstep/models/x.cc:1: models may see only boundary.h of collectives")
        self.finds(check_rooms.check, "lockstep/serving/x.cc", '#include "lockstep/runtime/start.h"\n',
                   "lockstep/serving/x.cc:1: serving may see only engine.h of runtime")

    def test_unknown_room(self):
        self.finds(check_rooms.check, "lockstep/models/x.cc", '#include "lockstep/magic/y.h"\n',
                   "lockstep/models/x.cc:1: there is no room called magic")
        self.finds(check_rooms.check, "lockstep/magic/y.cc", "\n", "lockstep/magic/y.cc:1: lies in no room")
        self.finds(check_rooms.check, "lockstep/stray.cc", "\n", "lockstep/stray.cc:1: lies in no room")

    def test_relative_include(self):
        self.finds(check_rooms.check, "lockstep/base/x.cc", '#include "check.h"\n', 'lockstep/base/x.cc:1: "check.h": own headers')

    def test_libraries(self):
        for place, header in (("models/x.cc", "nlohmann/json.hpp"), ("base/file.cc", "spdlog/spdlog.h"),
                              ("runtime/x.cc", "boost/asio.hpp"), ("serving/http/x.cc", "pcre2.h"),
                              ("serving/http/x.cc", "utf8proc.h"), ("serving/x.cc", "CLI/CLI.hpp"),
                              ("tensors/x.cc", "hwy/highway.h"), ("cli/x.cc", "gtest/gtest.h"),
                              ("planning/x.cc", "cuda_runtime.h"), ("collectives/in_process/x.cc", "nccl.h"),
                              ("collectives/in_process/x.cc", "mpi.h"), ("runtime/x.cc", "openssl/ssl.h")):
            self.finds(check_rooms.check, f"lockstep/{place}", f"#include <{header}>\n",
                       f"lockstep/{place}:1: <{header}> belongs to")

    def test_planning_is_pure(self):
        for header in ("thread", "chrono", "fstream", "random", "mutex"):
            self.finds(check_rooms.check, "lockstep/planning/x.cc", f"#include <{header}>\n",
                       "lockstep/planning/x.cc:1: planning is pure")

    def test_comment_is_no_include(self):
        with Tree({"lockstep/base/x.cc": '// #include "lockstep/cli/y.h"\n/*\n#include <boost/asio.hpp>\n*/\n'}) as root:
            self.assertEqual(check_rooms.check(root), [])

    def test_folder_names(self):
        self.finds(check_rooms.check, "lockstep/base/utils/x.cc", "\n", "lockstep/base/utils/x.cc:1: 'utils'")
        self.finds(check_rooms.check, "tests/base/helpers.cc", "\n", "tests/base/helpers.cc:1: 'helpers'")

    def test_own_header_first(self):
        self.finds(check_rooms.check, "lockstep/base/check.cc", '#include <string>\n\n#include "lockstep/base/check.h"\n',
                   "lockstep/base/check.cc:1: the first include")

    def test_front_door(self):
        self.finds(check_rooms.check, "lockstep/base/x.h", "// Words.\n#pragma once\n", "lockstep/base/x.h:1: ")
        self.finds(check_rooms.check, "lockstep/base/x.h", "#pragma once\n#include <string>\n", "lockstep/base/x.h:2: ")
        self.finds(check_rooms.check, "lockstep/kernels/x-inl.h", "#ifdef A\n", "lockstep/kernels/x-inl.h:2: ")
        with Tree({"lockstep/kernels/x-inl.h": "// Lanes.\n#ifdef A\n"}) as root:
            self.assertEqual(check_rooms.check(root), [])

    def test_links(self):
        text = CLEAN["CMakeLists.txt"]
        self.finds(check_rooms.check, "CMakeLists.txt", text.replace("lockstep_room(planning DEPENDS base)",
                                                                   "lockstep_room(planning DEPENDS base tensors)"),
                   "CMakeLists.txt:2: planning links ['base', 'tensors']")
        self.finds(check_rooms.check, "CMakeLists.txt", text.replace("lockstep_room(tensors", "lockstep_hall(tensors"),
                   "CMakeLists.txt:1: there is no lockstep_room(tensors")


class Sizes(Planted):
    def test_clean(self):
        self.clean(check_sizes.check)

    def test_too_long(self):
        self.finds(check_sizes.check, "lockstep/base/x.h", "\n" * 251, "lockstep/base/x.h:251: 251 lines")
        self.finds(check_sizes.check, "tests/base/x_test.cc", "\n" * 601, "tests/base/x_test.cc:601: 601 lines")
        with Tree({"lockstep/base/x.h": "\n" * 250, "lockstep/base/x.cc": "\n" * 600}) as root:
            self.assertEqual(check_sizes.check(root), [])

    def test_exceptions(self):
        with Tree({"lockstep/base/x.h": "\n" * 280}) as root:
            self.assertEqual(check_sizes.check(root, {"lockstep/base/x.h": (280, "one table")}), [])
            self.assertEqual(len(check_sizes.check(root, {"lockstep/base/x.h": (279, "one table")})), 1)
            unneeded = check_sizes.check(root, {"lockstep/base/x.h": (280, ""), "lockstep/base/check.h": (300, "")})
            self.assertEqual([u.split(":")[0] for u in unneeded], ["lockstep/base/check.h"])

    def test_long_line_of_a_page(self):
        self.finds(check_sizes.check, "docs/b.md", "x" * 120 + "\n" + "x" * 121 + "\n", "docs/b.md:2: 121 columns")


class State(Planted):
    MUTABLE = [
        "int counter = 0;", "static std::mutex lock;", "std::atomic<int> seen{0};", "namespace { std::map<int, int> cache; }",
        "thread_local int depth = 0;", "inline std::vector<int> all;", "extern int counter;",
        "struct A { static int count; };", "class A { public: static std::string name; int x = 0; };",
        "int next() { static int n = 0; return ++n; }", "void f() { if (true) { thread_local std::string scratch; } }",
        "auto table = std::vector<int>{1, 2};", "int A::count = 0;", "std::unique_ptr<int> p;", "unsigned long long mask;",
        "const int kOne = 1; int two = 2;",
    ]
    CONSTANT = [
        "constexpr int kOne = 1;", "const std::string kName = \"a;b{\";", "int next(int n);", "using A = int;",
        "static constexpr char kLetter = '{';", "struct A { int x = 0; std::string name; static A make(int n); };",
        "enum class E { kA, kB };", "int f() { static const int n = 2; int m = 3; return n + m; }", "template <class T> class B;",
        "struct C; class D : public E { int x_; };", "inline constexpr int kTable[] = {1, 2, 3};",
        "struct F { F(int x) : x_{x} {} int x_; };", "#define LOCK int lock = 0;\nint f();", "static_assert(sizeof(int) == 4);",
        "void g() { auto l = [](int x) { return x; }; run([&] { int y = 0; }); }", "extern \"C\" int main2(const char* p);",
        "bool operator==(A a, B b);", "// int counter = 0;", "struct G { bool operator==(const G&) const = default; };",
        "namespace a::b { constexpr int kX = 1; }", "__extension__ typedef __int128 Wide;", "std::vector<int> f(std::map<int, int> m) { int n = 1; return {n}; }",
    ]

    def test_clean(self):
        self.clean(check_text.check)

    def test_mutable(self):
        for text in self.MUTABLE:
            with self.subTest(text):
                self.finds(check_text.check, "lockstep/base/x.cc", f"#include <a>\n{text}\n",
                           "lockstep/base/x.cc:2: mutable state outside of an object")

    def test_constant(self):
        for text in self.CONSTANT:
            with self.subTest(text), Tree({"lockstep/base/x.cc": text + "\n"}) as root:
                self.assertEqual(check_text.check(root), [])

    def test_exception(self):
        with Tree({"lockstep/base/x.cc": "int counter = 0;\n"}) as root:
            self.assertEqual(check_text.check_state(root, {"lockstep/base/x.cc": "a reason"}), [])


class Words(Planted):
    def test_left_behind(self):
        for word in ("TO" "DO", "FIX" "ME"):
            self.finds(check_text.check, "lockstep/base/x.cc", f"\n// {word}: later\n", "lockstep/base/x.cc:2: left behind")
            self.finds(check_text.check, "tools/x.sh", f"# {word}\n", "tools/x.sh:1: left behind")

    def test_machine_path(self):
        for path in ("/wo" "rk/main/x", "/ro" "ot/.cache", "/ho" "me/ann/x", "../sha" "red/x"):
            self.finds(check_text.check, "tests/base/x.cc", f'open("{path}");\n', "tests/base/x.cc:1: a path of somebody's machine")
        with Tree({"docs/b.md": "a frame/work, models/root and https://host/rooted\n"}) as root:
            self.assertEqual(check_text.check_words(root), [])

    def test_models_know_no_rank(self):
        for text in ("int rank = 0;", "f(my_rank);", "f(num_ranks);", "f(world_size_);", "if (tp > 1) f();", "f(rank_idx);"):
            with Tree({"lockstep/models/a/x.cc": f"void g() {{ {text} }}\n"}) as root:
                self.assertTrue(check_text.check_models(root)[0].startswith("lockstep/models/a/x.cc:1: a model knows no ranks"), text)
        with Tree({"lockstep/models/a/x.cc": 'int kv_lora_rank; // of a rank\nf("rank"); RankGrid g; ranked();\n'}) as root:
            self.assertEqual(check_text.check_models(root), [])


class Docs(Planted):
    def test_clean(self):
        self.clean(check_docs.check)

    def test_broken_link(self):
        self.finds(check_docs.check, "docs/b.md", "# B\n\n[x](c.md) [y](../README.md) [z](https://example.org/q)\n",
                   "docs/b.md:3: the link to c.md")
        self.finds(check_docs.check, "docs/b.md", "![x](a.svg)\n", "docs/b.md:1: the link to a.svg")
        self.finds(check_docs.check, "docs/b.md", "[x](a.md#three-words)\n", "docs/b.md:1: a.md has no heading #three-words")

    def test_goal(self):
        self.finds(check_docs.check, "docs/b.md", "`make run`, make sure, `cmake --build x`\n\n```\nPORT=1 make fly\n```\n",
                   "docs/b.md:4: the Makefile has no goal fly")

    def test_path(self):
        self.finds(check_docs.check, "docs/b.md", "`lockstep/base/check.h`, `lockstep/base/chek.h`, `lockstep/models/FAMILY/x.cc`\n",
                   "docs/b.md:1: there is no lockstep/base/chek.h")

    def test_family(self):
        self.finds(check_docs.check, "lockstep/models/registry.cc", 'constexpr Family kFamilies[] = {\n    {"llama", describe_llama},\n};\n',
                   "README.md:1: the family llama is not named")

    HELPS = {"": "Options:\n  -h,--help  Help\n",
             "serve": "Options:\n  -h,--help  Help\n  -m,--model,--model-path TEXT  Folder\n  --tp-size,--tp INT  Ranks\n"}

    def test_flag(self):
        page = "`--model x`, `ls --color`, `lockstep serve --fast`\n\n```\n$ A=1 build/bin/lockstep serve \\\n  --slow 2 --tp 1\n```\n"
        with Tree({"docs/b.md": page}) as root:
            found = check_docs.check_flags(root, self.HELPS)
        self.assertEqual(found, ["docs/b.md:1: lockstep has no flag --fast", "docs/b.md:4: lockstep has no flag --slow"])

    def test_flag_without_a_page(self):
        with Tree() as root:
            self.assertEqual(check_docs.check_flags(root, self.HELPS), ["README.md:1: no page names the flag --tp-size of lockstep serve"])

    def test_help_of_a_program(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "lockstep"
            program.write_text("#!/bin/sh\ncase $1 in\n"
                               "--help) printf 'Options:\\n  -h,--help  Help\\n\\nSubcommands:\\n  serve   Serves\\n  plan  Plans\\n' ;;\n"
                               "serve) echo '  --tp-size,--tp INT' ;;\nplan) echo '  --json' ;;\nesac\n")
            program.chmod(0o755)
            helps = check_docs.helps_of(program)
        self.assertEqual({name: check_docs.flag_groups(page) for name, page in helps.items()},
                         {"": [["--help"]], "serve": [["--tp-size", "--tp"]], "plan": [["--json"]]})


class ShouldNotCompile(unittest.TestCase):
    RIGHT = "// refused: cannot convert\nstruct A {};\n#ifdef SHOULD_NOT_COMPILE\nint f(A a) { return a; }\n#endif\n"

    def check(self, text):
        with Tree({"cases/a.cc": text}) as root:
            return should_not_compile.check(root, COMPILER, root / "cases")

    def test_refused(self):
        said = self.check(self.RIGHT.replace("cannot convert", "(cannot convert|no viable conversion)"))
        self.assertEqual(said, [])

    def test_compiles(self):
        self.assertIn("compiles with the mistake", self.check(self.RIGHT.replace("return a", "return sizeof(a)"))[0])

    def test_broken_anyway(self):
        self.assertIn("even without the mistake", self.check(self.RIGHT + "int g( {\n")[0])

    def test_refused_for_another_reason(self):
        self.assertIn("is refused, but not with", self.check(self.RIGHT.replace("return a", "retrun a"))[0])

    def test_no_pattern_and_no_case(self):
        self.assertIn("has no line", self.check("int x;\n")[0])
        with Tree() as root:
            self.assertIn("holds no case", should_not_compile.check(root, COMPILER, root / "cases")[0])


class Headers(unittest.TestCase):
    """The library of cmake/HeaderCheck.cmake, in a project of its own."""

    PROJECT = ("cmake_minimum_required(VERSION 3.25)\nproject(planted CXX)\n"
               "include({})\nlockstep_header_check(header_check ${{CMAKE_SOURCE_DIR}})\n")

    def builds(self, header):
        module = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "HeaderCheck.cmake"
        planted = {"CMakeLists.txt": self.PROJECT.format(module), "lockstep/base/x.h": header}
        with Tree(planted) as root:
            (root / "lockstep/base/json.h").unlink()  # needs a library
            for name in ("lockstep/base/check.h", "lockstep/base/check.cc"):
                (root / name).unlink()
            for command in (["cmake", "-G", "Ninja", "-S", root, "-B", root / "build"],
                            ["cmake", "--build", root / "build", "--target", "header_check"]):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    return False, done.stdout + done.stderr
            return True, ""

    def test_header_that_stands_alone(self):
        self.assertEqual(self.builds("#pragma once\n#include <string>\nstd::string name();\n"), (True, ""))

    def test_header_that_does_not(self):
        built, said = self.builds("#pragma once\nstd::string name();\n")
        self.assertFalse(built)
        self.assertRegex(said, "lockstep/base/x.h:2")


class Programs(unittest.TestCase):
    def test_exit_status(self):
        """As ctest runs them: 0 and 'ok' for a clean tree, 1 and the place for a planted fault."""
        here = pathlib.Path(__file__).parent
        faults = {"check_rooms.py": ("lockstep/base/x.cc", "#include <boost/asio.hpp>\n"),
                  "check_sizes.py": ("lockstep/base/x.cc", "\n" * 601),
                  "check_text.py": ("lockstep/base/x.cc", "int counter = 0;\n"),
                  "check_docs.py": ("docs/b.md", "[x](c.md)\n")}
        for name, (path, text) in faults.items():
            for planted, status in (({}, 0), ({path: text}, 1)):
                with self.subTest(name=name, status=status), Tree(planted) as root:
                    done = subprocess.run([sys.executable, here / name, root], capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                    self.assertIn(path if status else ": ok", done.stdout)


if __name__ == "__main__":
    unittest.main()
