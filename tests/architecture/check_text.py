#!/usr/bin/env python3
"""What the text of the tree must not hold: state at namespace scope, words left behind, ranks in models.
usage: check_text.py [ROOT]
"""

import re
import sys

from source_tree import CPP, TEXT, files, line_of, read, report, root_from_arguments, without_comments

# path: why it may hold mutable state outside of an object
STATE_EXCEPTIONS = {}

LEFT_BEHIND = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}~<-])/(?:work|root|home/[a-z]\w*)(?![\w-])|\.\./shared\b")
RANK_WORDS = re.compile(r"\b(?!\w*lora_rank)\w*(?:(?<![a-z])ranks?(?![a-z])|world_size)\w*|if\s*\(\s*tp\b")


# ---- mutable state -------------------------------------------------------------------------------------------------

_NOT_A_VARIABLE = re.compile(
    r"^(using|typedef|friend|static_assert|namespace|template|concept|asm|goto|return|public|private|protected)\b"
    r"|^(extern\s+\"[^\"]*\"\s*)?(class|struct|union|enum)\s+[\w:\[\]\s<>,]*$|\boperator\b")
_CONSTANT = re.compile(r"\b(constexpr|consteval|constinit\s+const|const)\b")
_SPECIFIER = re.compile(r"\b(static|thread_local|inline|extern|volatile|mutable)\b")


def _without_preprocessor(text):
    """Blanks directives, continued lines too; offsets stay."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.M)


def _kind_of_brace(head, kind):
    """What the `{` after the statement head `head` opens, inside a scope of kind `kind`."""
    head = head.strip()
    if re.search(r"\bnamespace\b[\w:\s]*$", head) or re.match(r'extern\s*"', head):
        return "namespace"
    if re.search(r"\b(class|struct|union)\b(?!.*\()(?!.*=)", head, re.S) and not head.endswith(")"):
        return "class"
    if re.search(r"\benum\b", head):
        return "list"
    if kind in ("function", "list"):
        return "function" if kind == "function" else "list"
    if re.search(r"\)\s*(const|noexcept|override|final|&|&&|mutable|->[^=]*|:[^=]*|requires[^=]*|\s)*$", head, re.S):
        return "function"
    return "list"  # an initializer


def _statements(text):
    """(scope kind, offset, statement) of every statement that ends with ; or with a braced initializer."""
    stack, start, i = ["namespace"], 0, 0
    depth = 0  # of parentheses
    while i < len(text):
        c = text[i]
        if c == "(":
            depth += 1
        elif c == ")":
            depth = max(0, depth - 1)
        elif depth and c in "{}":
            # a lambda or a list inside parentheses: step over it
            level = 1 if c == "{" else 0
            while level and i + 1 < len(text):
                i += 1
                level += {"{": 1, "}": -1}.get(text[i], 0)
        elif c == "{":
            kind = _kind_of_brace(text[start:i], stack[-1])
            if kind == "list":
                level = 1
                while level and i + 1 < len(text):
                    i += 1
                    level += {"{": 1, "}": -1}.get(text[i], 0)
            else:
                stack.append(kind)
                start = i + 1
        elif c == "}":
            if len(stack) > 1:
                stack.pop()
            start = i + 1
        elif c == ";" and not depth:
            yield stack[-1], start, text[start:i]
            start = i + 1
        i += 1


def _is_mutable_state(kind, statement):
    text = re.sub(r"\[\[[^\]]*\]\]|\b__extension__\b", " ", statement)
    text = re.sub(r"\b(public|private|protected)\s*:", " ", text).strip()
    declarator = re.split(r"=|\{", text, maxsplit=1)[0]
    if not text or _NOT_A_VARIABLE.search(declarator.strip()) or _CONSTANT.search(declarator):
        return False
    if "(" in declarator:  # a function, or a variable with a constructor call, which our style writes with braces
        return False
    if kind == "namespace":
        words = re.findall(r"[\w:>\]&*]+", _SPECIFIER.sub(" ", declarator))
        return len(words) >= 2
    return bool(re.search(r"\b(static|thread_local)\b", declarator))  # in a class or a function


def check_state(root, exceptions=None):
    exceptions = STATE_EXCEPTIONS if exceptions is None else exceptions
    found = []
    for path in files(root, "lockstep", CPP):
        relative = str(path.relative_to(root))
        if relative in exceptions:
            continue
        text = _without_preprocessor(without_comments(read(path), keep_strings=False))
        for kind, start, statement in _statements(text):
            if _is_mutable_state(kind, statement):
                offset = start + len(statement) - len(statement.lstrip())
                words = " ".join(statement.split())
                found.append(f"{relative}:{line_of(text, offset)}: mutable state outside of an object: {words[:70]}")
    return found


# ---- words ---------------------------------------------------------------------------------------------------------

def check_words(root):
    found = []
    for path in files(root, suffixes=TEXT):
        if path.stat().st_size > 2_000_000:
            continue
        relative = path.relative_to(root)
        for number, line in enumerate(read(path).splitlines(), 1):
            for pattern, what in ((LEFT_BEHIND, "left behind"), (MACHINE_PATH, "a path of somebody's machine")):
                match = pattern.search(line)
                if match:
                    found.append(f"{relative}:{number}: {what}: {match.group(0)}")
    return found


def check_models(root):
    """A model never asks how many ranks there are: the local shapes of its weights say all that it needs."""
    found = []
    for path in files(root, "lockstep/models", CPP):
        text = _without_preprocessor(without_comments(read(path), keep_strings=False))
        for match in RANK_WORDS.finditer(text):
            found.append(f"{path.relative_to(root)}:{line_of(text, match.start())}: a model knows no ranks: {match.group(0)}")
    return found


def check(root):
    return [v for c in (check_state, check_words, check_models) for v in c(root)]


if __name__ == "__main__":
    top = root_from_arguments()
    sys.exit(report(top, check(top), "text"))
