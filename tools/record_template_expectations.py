#!/usr/bin/env python3
"""Records what Jinja2 makes of the templates of template_cases.py and of tests/serving/data/chat_template/*.jinja.

Jinja2 is configured as Hugging Face transformers configures it for chat templates. The result is what
tests/serving/chat_template_differential_test.cc compares Lockstep's interpreter with. Needs `pip install jinja2`
(3.1.6 was used); run it from anywhere, it writes tests/serving/data/chat_template/expectations.json.
"""

import datetime
import json
import pathlib
import sys
import warnings

import jinja2
import jinja2.ext
import jinja2.sandbox

import template_cases

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/serving/data/chat_template"
NOW = datetime.datetime(2024, 7, 26, 9, 5, 3)  # the test gives its renderings the same local time
MAX_BYTES = 300_000


class Raised(jinja2.exceptions.TemplateError):
    """raise_exception() of a template, told apart from Jinja's own errors."""


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's text for training; rendering ignores it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise Raised(message)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda text: NOW.strftime(text)
    return environment


def render(environment, template, context):
    """{"output": ...}, {"raised": message of raise_exception} or {"fails": "parse" | "render"}."""
    try:
        compiled = environment.from_string(template)
    except (jinja2.exceptions.TemplateError, SyntaxError):
        return {"fails": "parse"}
    try:
        return {"output": compiled.render(**context)}
    except Raised as error:
        return {"raised": str(error)}
    except Exception:  # noqa: BLE001: whatever Python raises, the rendering failed
        return {"fails": "render"}


def main():
    warnings.simplefilter("ignore")  # unknown escapes in template strings
    environment = make_environment()
    contexts = template_cases.CONTEXTS
    cases = []
    for context, templates in template_cases.TEMPLATES:
        for template in templates:
            case = {"template": template, "context": context}
            case.update(render(environment, template, contexts[context]))
            cases.append(case)
    for path in sorted(DATA.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for context in template_cases.CHATS:
            case = {"file": path.name, "context": context}
            case.update(render(environment, source, contexts[context]))
            cases.append(case)
    text = json.dumps({"contexts": contexts, "cases": cases}, ensure_ascii=False, indent=0)
    if len(text.encode()) > MAX_BYTES:
        sys.exit(f"the expectations have {len(text.encode())} bytes, more than {MAX_BYTES}")
    (DATA / "expectations.json").write_text(text + "\n", encoding="utf-8")
    outcomes = [next(key for key in ("output", "raised", "fails") if key in case) for case in cases]
    print({key: outcomes.count(key) for key in ("output", "raised", "fails")}, len(text.encode()), "bytes")


if __name__ == "__main__":
    main()
