#!/usr/bin/env python3
"""Writes lockstep/serving/tokenizer/unicode_stand_ins.inc.

Debian 12's PCRE2 knows Unicode 14; the tokenizers library that published tokenizers are checked against knows Unicode 16.
For each character assigned in between, the table names an older one of the same general category, of the same script where
that script has one, and of the same length in UTF-8: a pre-tokenizer that sees it instead cuts the text at the same places.

Needs an interpreter whose unicodedata is 14.0 (Python 3.11) and the package unicodedataplus 16.0.0.
"""
import pathlib
import unicodedata as old

import unicodedataplus as new

assert old.unidata_version == "14.0.0" and new.unidata_version == "16.0.0"
# Scripts that patterns name: a character of another script must not borrow one of these.
NAMED = {"Han", "Hiragana", "Katakana", "Hangul", "Bopomofo", "Latin", "Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic",
         "Devanagari", "Bengali", "Tamil", "Telugu", "Thai", "Lao", "Khmer", "Myanmar", "Georgian", "Ethiopic", "Common"}


def utf8_length(code):
    return len(chr(code).encode())


def kind(code):
    return new.category(chr(code)), new.script(chr(code)), utf8_length(code)


def main():
    codes = [c for c in range(0x80, 0x110000) if not 0xD800 <= c < 0xE000]
    known = [c for c in codes if old.category(chr(c)) not in ("Cn", "Co") and old.category(chr(c)) == new.category(chr(c))]
    rows = []
    for code in codes:
        if old.category(chr(code)) != "Cn" or new.category(chr(code)) == "Cn":
            continue
        if rows and rows[-1][1] == code - 1 and kind(rows[-1][0]) == kind(code):
            rows[-1][1] = code
        else:
            rows.append([code, code])
    cells = []
    for first, last in rows:
        category, script, length = kind(first)
        alike = [c for c in known if new.category(chr(c)) == category and utf8_length(c) == length]
        same_script = [c for c in alike if new.script(chr(c)) == script]
        unnamed = [c for c in alike if new.script(chr(c)) not in NAMED]
        common = [c for c in alike if new.script(chr(c)) == "Common"]
        stand_in = min(same_script or unnamed or common, key=lambda c: abs(c - first))
        cells.append(f"{{0x{first:05x}, 0x{last:05x}, 0x{stand_in:05x}}},")
    lines = ["// Written by tools/generate_unicode_stand_ins.py: first, last, and the older character that stands in for them."]
    lines += [" ".join(cells[i:i + 3]) for i in range(0, len(cells), 3)]
    target = pathlib.Path(__file__).parent.parent / "lockstep/serving/tokenizer/unicode_stand_ins.inc"
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
