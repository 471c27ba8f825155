"""The templates and contexts of record_template_expectations.py: one small template for each rule of the language."""

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city, <b>now</b> & later",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "days": {"type": "integer", "default": 1},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "places": {"type": "array", "items": {"type": "number"}},
                "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
                "mixed": {"type": ["string", "null"]},
            },
            "required": ["city"],
        },
    },
}
PLAIN_TOOL = {"type": "function", "function": {"name": "stop", "description": "Ends it all", "parameters": {}}}


def call(name, arguments, number):
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "How warm is it in Münster – «heute»?"}
CONTEXTS = {
    "empty": {},
    "values": {
        "i": 7,
        "negative": -3,
        "big": 12345678901234567890,
        "f": 2.5,
        "small": 1e-7,
        "large": 1e16,
        "yes": True,
        "no": False,
        "nothing": None,
        "s": "Hello, World",
        "u": "Größe ÄÖÜ ß 日本語 🎉",
        "padded": "  two  words \n",
        "lines": "one\n  two\n\nthree\n",
        "quote": "it's \"quoted\" \\ back",
        "html": "<b>&'\"",
        "numbers": [3, 1, 2],
        "words": ["pear", "Apple", "fig", "apple"],
        "mixed": [1, "1", 1.0, True, None, [2, 3], {"k": "v"}],
        "nested": [[1, 2], [3, [4, 5]]],
        "empty_list": [],
        "empty_text": "",
        "d": {"b": 1, "a": 2, "items": "shadow", "C": 3},
        "deep": {"x": {"y": {"z": [10, {"w": "end"}]}}},
        "people": [
            {"name": "Ann", "age": 31, "tags": ["x"], "address": {"city": "Oslo"}},
            {"name": "bob", "age": 25, "tags": [], "address": {"city": "Rom"}},
            {"name": "Cy", "age": 31, "tags": ["y", "z"], "address": {"city": "oslo"}},
        ],
        "tree": [{"n": "a", "kids": [{"n": "b", "kids": []}, {"n": "c", "kids": [{"n": "d", "kids": []}]}]}],
    },
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            USER,
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nCold.", "reasoning_content": None},
            {"role": "user", "content": "Thanks"},
        ],
        "add_generation_prompt": True,
        "bos_token": "<s>",
        "eos_token": "</s>",
    },
    "one_user": {"messages": [USER], "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"},
    "no_prompt": {
        "messages": [USER, {"role": "assistant", "content": "  Cold. "}],
        "add_generation_prompt": False,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "enable_thinking": False,
    },
    "tools": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            USER,
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "I should look.",
                "tool_calls": [
                    call("get_weather", {"city": "Münster", "days": 2, "deep": {"a": [1, 2.0, None, True]}}, 1),
                    call("get_weather", {"city": "New\nYork"}, 2),
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "name": "get_weather", "content": "{\"temp\": 3}"},
            {"role": "tool", "tool_call_id": "call_2", "name": "get_weather", "content": "warm"},
        ],
        "tools": [TOOL, PLAIN_TOOL],
        "add_generation_prompt": True,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "enable_thinking": True,
    },
    "text_arguments": {
        "messages": [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call("stop", "{\"now\": true}", 1)]},
            {"role": "tool", "content": {"ok": True}},
            {"role": "assistant", "content": "<think>done</think>Stopped."},
            {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]},
        ],
        "tools": [PLAIN_TOOL],
        "add_generation_prompt": False,
        "bos_token": "<s>",
        "eos_token": "</s>",
    },
    "bad_order": {
        "messages": [{"role": "assistant", "content": "first"}, USER, USER],
        "add_generation_prompt": True,
        "bos_token": "<s>",
        "eos_token": "</s>",
    },
    "no_messages": {"messages": [], "add_generation_prompt": True, "bos_token": "<s>"},
}
CHATS = ["chat", "one_user", "no_prompt", "tools", "text_arguments", "bad_order", "no_messages"]

WHITESPACE = [
    "a {{ 1 }} b", "a\n", "a\n\n", "\n a", "", "a\r\nb\rc\n", "{{ 'x' }}\n{{ 'y' }}\n", "{% if 1 %}\nx\n{% endif %}\n",
    "  {% if 1 %}  \nx\n  {% endif %}\nz", "  {%+ if 1 %}\nx\n  {%+ endif %}\nz", "a {%- if 1 -%} b {%- endif -%} c",
    "a\n  {{- 1 -}}\n  b", "a\n  {{ 1 }}\n  b", "{# c #}\nx", "  {# c #}\nx", "a {#- c -#} b", "a\n  {#+ c #}\n b", "x{# a\n b #}y",
    "{% raw %}{{ x }}{% endraw %}", "{% raw %}\n {% if %}\n{% endraw %}\nb", "a {%- raw -%} b {%- endraw -%} c",
    "  {% raw %}\nq\n  {% endraw %}\nz", "{{ 1 -}}\n\n  x", "{%- set x = 1 -%}\n x {{ x }}", "a\n\n{% set x = 1 %}\n\n{{ x }}",
    "x {% set y = 2 +%}\nz", "{{-1}}", "{{ -1 }}", "{{+1}}", "{{ '}}' }}", "{{ {'a': {'b': 1}}.a.b }}", "{{ '{{' }}{{ '{%' }}",
    "\t{% if 1 %}\ty{% endif %}", "a\u00a0{%- if 1 %}b{% endif %}", "{% if 1 -%}\n\n\n  x\n{%- endif %}\ny", "{ { } } % # {x}",
    "{{ 1\n+\n2 }}", "{%\nset\nx\n=\n3\n%}{{ x }}", "{% if 1 %}a{% endif %}\n\nb", "a{% if 1 %}\n{% endif %}b\n", "{{ 1 }}{# x #}{{ 2 }}\n\n",
    "{% for i in [1, 2] %}\n{{ i }}\n{% endfor %}\n", "{% for i in [1, 2] -%}\n{{ i }}\n{%- endfor %}", "{#- only -#}", "a{#-#}b", "{% raw %}{% endraw %}",
]
LITERALS = [
    "{{ 'a\\nb\\t\\\\c' }}", "{{ \"d\\\"q\" }}", "{{ 'it\\'s' }}", "{{ '\\x41\\u00e9\\U0001F389' }}", "{{ '\\101\\60' }}", "{{ '\\q\\d' }}",
    "{{ 'a' 'b' \"c\" }}", "{{ 'äöü' }}", "{{ 'line\\\nnext' }}", "{{ 'two\nlines' }}", "{{ 1_000 }}", "{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 0X_ff }}",
    "{{ 1.5 }} {{ 1e3 }} {{ 1.5e-8 }} {{ 1_0.5_0 }} {{ 2E5 }}", "{{ 1.0 }} {{ 100000000000000000.0 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789012345.6 }}",
    "{{ 0.1 + 0.2 }} {{ 1e-4 }} {{ 1e-5 }} {{ 0.00012 }} {{ 1e22 }} {{ 1e308 * 10 }} {{ -1e308 * 10 }}", "{{ 5e-324 }} {{ 1.7976931348623157e308 }}",
    "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}", "{{ [1, 'a', 2.0, true, none] }}", "{{ [] }} {{ {} }} {{ () }}", "{{ (1,) }} {{ (1, 2) }} {{ 1, 2 }}",
    "{{ {'a': 1, 'b': [2]} }}", "{{ {1: 'x', 1.0: 'y', true: 'z'} }}", "{{ {'a': 1, 'a': 2} }}", "{{ [1, 2,] }} {{ {'a': 1,} }}", "{{ ['it\\'s', 'a\"b', 'c\\'\"d', '\\n\\x00\\x7f\\u200b'] }}",
    "{{ ['日本', '🎉', 'é', '\\xa0'] }}", "{{ {(1, 2): 3}[(1, 2)] }}", "{{ 007 }}", "{{ 00 }}", "{{ 1.e5 }}", "{{ 'a'.b }}", "{{ 'abc'[1] }}", "{{ [1,2,3].1 }}", "{{ 3.0.x }}",
    "{{ 'open }}", "{{ \"\\x4\" }}", "{{ '\\u12' }}", "{{ [[[[[[[[1]]]]]]]] }}", "{{ (((((1))))) }}", "{{ 170141183460469231731687303715884105727 }}", "{{ ''}}|{{'' ''}}",
]
OPERATORS = [
    "{{ i + 1 }} {{ i - 10 }} {{ i * 2 }} {{ i / 2 }} {{ i // 2 }} {{ i % 4 }} {{ i ** 2 }}", "{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 // -2 }}",
    "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }}", "{{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 2 ** 100 }}", "{{ 2 ** 3 ** 2 }}", "{{ -2 ** 2 }}",
    "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 6 / 3 }} {{ 6 // 3 }} {{ 6.0 // 3 }}", "{{ true + 1 }} {{ true * 3 }} {{ true / 2 }} {{ -true }}",
    "{{ +i }} {{ - -i }} {{ -(-i) }}", "{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * -1 }}|", "{{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }} {{ 2 * (1,) }}",
    "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [1] + (2,) }}", "{{ 'a' - 'b' }}", "{{ none + 1 }}", "{{ -'a' }}", "{{ {} + {} }}", "{{ 1 ~ 'a' ~ 2.0 ~ none ~ true ~ [1] }}", "{{ i ~ f + 1 }}", "{{ 1 + 2 ~ 3 }}",
    "{{ missing ~ 'x' }}", "{{ missing + 'x' }}", "{{ 'x' + missing }}", "{{ missing * 2 }}", "{{ -missing }}", "{{ missing }}|{{ missing.x }}", "{{ missing() }}", "{{ missing == missing }} {{ missing == none }} {{ missing != 1 }}", "{{ missing < 1 }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 > 1 }} {{ 1 == 1.0 == true }}", "{{ 1 < 'a' }}", "{{ 'a' < 'b' }} {{ 'B' < 'a' }} {{ 'ä' > 'z' }} {{ '🎉' > '日' }}", "{{ [1, 2] < [1, 3] }} {{ [1] < [1, 0] }} {{ (1, 'a') < (1, 'b') }}", "{{ [1] < (1,) }}",
    "{{ none == none }} {{ none < 1 }}", "{{ 1 == '1' }} {{ 1 == true }} {{ 0 == false }} {{ '' == false }} {{ [] == false }}", "{{ [1, 2] == [1, 2] }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}",
    "{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }}", "{{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ 'a' in 'abc' }} {{ '' in 'abc' }} {{ 'a' in d }} {{ 2 in d.values() }} {{ ('a', 2) in d.items() }}", "{{ 1 in 'abc' }}", "{{ 1 in 5 }}", "{{ 1 in none }}",
    "{{ 1 in missing }} {{ missing in [1] }} {{ missing in d }}", "{{ missing in 'abc' }}", "{{ [] in {} }}", "{{ 2 in range(5) }} {{ 7 in range(0, 10, 2) }} {{ 'a' in range(3) }}", "{{ true and 'x' }} {{ 0 and 'x' }} {{ '' or 'y' }} {{ none or 0 or 'z' }}",
    "{{ not 1 }} {{ not '' }} {{ not not 2 }} {{ not [] and not {} }}", "{{ not i == 7 }}", "{{ 1 if true else 2 }} {{ 1 if false else 2 }} {{ 1 if false }}|", "{{ 'a' if no else 'b' if no else 'c' }}", "{{ (1 if no) + 1 }}", "{{ 1 if yes if no else 2 }}",
    "{{ i is defined and missing is not defined }}", "{{ 'a' if s is string else 'b' }}", "{{ not missing }}", "{{ 1 == 1 and 2 == 2 or 3 == 4 }}", "{{ (1, 2) == (1, 2) }} {{ 1, 2 == 1 }}", "{{ 10 - 2 - 3 }} {{ 100 / 10 / 2 }} {{ 2 * 3 % 4 }}", "{{ '%s-%d' % ('a', 3) }}",
    "{{ 'x' is in ['x'] }} {{ 'x' is not in ['x'] }}", "{{ i is divisibleby 7 }} {{ i is divisibleby(2) }}", "{{ 1 is == 1 }}", "{{ d.keys() == {'b': 0, 'a': 0, 'items': 0, 'C': 0}.keys() }}", "{{ 5 is number is string }}", "{{ small }} {{ large }} {{ big }} {{ big + 1 }} {{ big * 10 }}",
    "{{ 1e400 }} {{ 1e-400 }}", "{{ 7 // 0.5 }} {{ 1e300 * 1e300 - 1e300 * 1e300 }}", "{{ 3 * none }}", "{{ 'a' * 2.0 }}", "{{ 5 - true }}", "{{ 2 ** 120 }}",
]
ACCESS = [
    "{{ d.a }} {{ d['a'] }} {{ d.missing }}|{{ d['missing'] }}|", "{{ d['items'] }}", "{{ d.items is callable }} {{ d['items'] is string }}", "{{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.get('zz', default=5) }}", "{{ d.get('a') }}{{ d.get('q', 'r') }}",
    "{{ d.keys() }} {{ d.values() }}", "{{ d.items() }}", "{{ d.items() | list }}", "{{ d.keys() | list | length }}", "{{ d.keys()[0] }}|", "{{ deep.x.y.z[1].w }} {{ deep['x']['y']['z'][0] }}", "{{ deep.q.r }}", "{{ deep.x.q is defined }}", "{{ none.x }}|", "{{ nothing.x.y }}", "{{ nothing['x'] is defined }}",
    "{{ numbers[0] }} {{ numbers[-1] }} {{ numbers[5] }}|{{ numbers[-5] }}|", "{{ numbers['x'] }}|{{ numbers[1.0] }}|{{ numbers[true] }}", "{{ numbers[1:] }} {{ numbers[:-1] }} {{ numbers[::-1] }} {{ numbers[::2] }} {{ numbers[5:] }} {{ numbers[-2:] }}", "{{ numbers[2:0:-1] }} {{ numbers[:] }} {{ numbers[1:2] }}",
    "{{ s[0] }} {{ s[-1] }} {{ s[:5] }} {{ s[::-1] }} {{ s[7:] }} {{ s[1:10:3] }}", "{{ u[0:5] }} {{ u[-1] }} {{ u[::-1] }} {{ u[6] }} {{ u | length }}", "{{ s[100] }}|{{ s['x'] }}|", "{{ (1, 2, 3)[1:] }} {{ range(10)[2:5] }} {{ range(10)[-1] }} {{ range(10)[::3] | list }}", "{{ numbers[::0] }}", "{{ numbers['a':] }}", "{{ d[1:] }}", "{{ 5[0] }}|",
    "{{ missing[0] }}", "{{ missing['a'] }}", "{{ missing[1:] }}", "{{ numbers.append }}|{{ numbers.append is defined }}", "{{ numbers.append(4) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ numbers.count(1) }} {{ numbers.index(2) }} {{ numbers.copy() }}", "{{ numbers.index(9) }}", "{{ (1, 1).count(1) }}", "{{ ''.__class__ }}|", "{{ d.__len__() }}", "{{ s.upper is defined }}",
    "{{ s.nope }}|{{ s.nope is defined }}", "{{ s.nope() }}", "{{ s() }}", "{{ 5() }}", "{{ d.a() }}", "{{ {'get': 1}['get'] }}", "{{ d['a', 'b'] }}|", "{{ {'x-y': 1}['x-y'] }}", "{{ people[0]['name'] }} {{ people[1].address.city }}", "{{ people[0].tags.0 }}", "{{ d.copy() }}", "{{ dict(d, z=1) }} {{ dict(a=1) }} {{ dict([('k', 'v')]) }}",
    "{{ dict(5) }}", "{{ {}.fromkeys(['a', 'b'], 0) }}", "{{ range(3) }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }}", "{{ range(0) | list }} {{ range(1, 2, 3) }}", "{{ range(0, 1, 0) }}", "{{ range('a') }}", "{{ range(100001) }}", "{{ range(100000) | length }}", "{{ range() }}", "{{ range(1.5) }}", "{{ [1, 2, 3][i - 6] }}",
    "{{ 'abc'[true] }}", "{{ mixed[5][0] }} {{ mixed[6].k }}", "{{ {'a': none}.a }} {{ {'a': none}.a is none }}", "{{ s | attr('upper') is callable }} {{ d | attr('a') is defined }}", "{{ (d | attr('keys'))() | list }}", "{{ namespace(a=1).a }} {{ namespace(a=1).b is defined }} {{ namespace({'q': 2}).q }}", "{{ namespace(a=1)['a'] }}", "{{ namespace(a=[1], b='x') }}", "{{ range(3).index(2) }} {{ range(3).count(7) }}",
]
STATEMENTS = [
    "{% if i == 7 %}a{% elif i == 8 %}b{% else %}c{% endif %}", "{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}|", "{% if missing.x %}a{% endif %}", "{% if i %}{% if no %}x{% else %}y{% endif %}{% endif %}", "{% if 1, 2 %}t{% endif %}",
    "{% for x in numbers %}{{ x }}{% endfor %}", "{% for x in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}", "{% for x in numbers %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in numbers %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in numbers %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}", "{% for x in [] %}{{ x }}{% else %}none{% endfor %}", "{% for x in [1] %}{{ x }}{% else %}none{% endfor %}", "{% for x in [1, 2] %}{% break %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}{% continue %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'añb' %}{{ c }}-{% endfor %}", "{% for a, b in [[1, 2], 'xy'] %}{{ a }}{{ b }} {% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}",
    "{% for x in numbers if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}", "{% for x in numbers if x > 5 %}{{ x }}{% else %}none{% endfor %}", "{% set ns = namespace(stop=false) %}{% for x in [1, 2, 3] if not ns.stop %}{{ x }}{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}", "{% set ns = namespace(stop=false) %}{% for x in [1, 2, 3] if not ns.stop %}{{ x }}{{ loop.last }}{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}", "{% for x in [1, 2, 3] if loop %}{% endfor %}|",
    "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in [1, 2] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% for x in [1, 2] %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{% for x in (1, 2) if x %}{{ x }}{% endfor %}",
    "{% for t in tree recursive %}{{ t.n }}{% if t.kids %}({{ loop(t.kids) }}){% endif %}{{ loop.depth }}{% endfor %}", "{% for t in tree recursive %}{{ loop.depth0 }}{{ loop.index }}{{ t.n }}{{ loop(t.kids) }}{% else %}.{% endfor %}", "{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "{% for x in numbers %}{{ loop }}{% endfor %}", "{% for x in numbers %}{{ loop | length }}{% endfor %}", "{% for x in d.items() %}{{ loop.length }}{% endfor %}", "{% for x in [1, 2] | map('string') %}{{ loop.length }}{{ x }}{% endfor %}",
    "{% set x = 1 %}{{ x }}", "{% set x = 1 %}{% set x = x + 1 %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set (a, b), c = [[1, 2], 3] %}{{ a }}{{ b }}{{ c }}", "{% set x = 1, 2 %}{{ x }}", "{% set x %}block {{ i }}{% endset %}[{{ x }}]", "{% set x | upper | trim %} block {{ i }} {% endset %}[{{ x }}]", "{% set x | replace('a', 'b') %}banana{% endset %}{{ x }}",
    "{% for y in [1, 2] %}{% set x = y %}{{ x }}{% endfor %}[{{ x }}]", "{% set x = 0 %}{% for y in [1, 2] %}{{ x }}{% set x = y %}{{ x }}{% endfor %}[{{ x }}]", "{% set x = 0 %}{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "{% if no %}{% set s = 1 %}{% endif %}{{ s }}", "{% for y in [1] %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}", "{{ s }}{% set s = 1 %}{{ s }}", "{% for y in [1] %}{% if no %}{% set s = 1 %}{% endif %}{{ s }}{% endfor %}", "{% if yes %}{% set q = 1 %}{% else %}{% set q = 2 %}{% endif %}{{ q }}",
    "{% for y in [1, 2] %}{% if loop.first %}{% set q = 'f' %}{% else %}{% set q = 'n' %}{% endif %}{{ q }}{% endfor %}", "{% if no %}{% set q = 1 %}{% elif yes %}{% set q = 2 %}{% set s = 3 %}{% endif %}{{ q }}{{ s }}", "{% set ns = namespace(x=0) %}{% for y in [1, 2] %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace() %}{% set ns.x %}t{% endset %}{{ ns.x }}", "{% set 5 = 1 %}", "{% set none = 1 %}", "{% set x.y.z = 1 %}", "{% set x[0] = 1 %}",
    "{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x }}", "{% with a = 1, b = i %}{{ a }}{{ b }}{% endwith %}[{{ a }}]", "{% with a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% endwith %}", "{% with a, b = [1, 2] %}{{ a }}{{ b }}{% endwith %}", "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}banana{% endfilter %}", "{% filter trim %}  x {% endfilter %}|", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter upper %}{% set s = 'in' %}{{ s }}{% endfilter %}{{ s }}", "{% filter nope %}x{% endfilter %}",
    "{% generation %}x{% set y = 1 %}{{ y }}{% endgeneration %}[{{ y }}]", "{% for x in [1, 2] %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% print i %}", "{% do x %}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% debug %}", "{% nope %}", "{% endif %}", "{% if 1 %}", "{% for x in y %}{% endif %}", "{% if 1 %}{% endfor %}", "{% else %}", "{{ 1", "{{ 1 %}", "{% if 1 }}", "{{ }}", "{{ 1 2 }}", "{{ a b }}", "{% set %}", "{% set x %}", "{% for %}", "{% for x %}{% endfor %}", "{% for x in %}{% endfor %}", "{% macro %}{% endmacro %}", "{% break %}", "{% macro m() %}{% break %}{% endmacro %}", "{% for loop in [1] %}{% endfor %}", "{# open", "{% raw %}open",
    "{{ (1 }}", "{{ 1) }}", "{{ [1) }}", "{{ {'a' 1} }}", "{{ x | }}", "{{ x | nope }}", "{{ x is nope }}", "{{ x is }}", "{{ x. }}", "{{ x[] }}", "{{ x[1 }}", "{{ f(a=1, 2) }}", "{{ f(**a, b=1) }}", "{{ f(*a, *b) }}", "{{ f(a b) }}", "{{ $ }}", "{{ a ! b }}", "{{ a && b }}", "{{ a = 1 }}", "{{ not }}", "{{ 1 + }}", "{{ 'a' is 'b' }}", "{%%}", "{% 5 %}", "{{ x if }}", "{{ x | upper() }}", "{{ a is b is c }}", "{% if x = 1 %}{% endif %}", "{% set x = %}", "{{ ,1 }}", "{{ [1 2] }}", "{{ 1,, }}", "{% for x in [1] %}{{ x }}{% endfor", "{% if 1: %}x{% endif %}", "{% for x in [1]: %}{{ x }}{% endfor %}",
]
MACROS = [
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=4, a=5) }}", "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}", "{% macro m(a) %}{{ a + 1 }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}", "{% macro m(a) %}{{ kwargs }}{% endmacro %}{{ m(1, q=3) }}",
    "{% macro m(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call m(1) %}body{{ i }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}+{{ b }}{% endcall %}", "{% macro m() %}{{ caller(1) }}{% endmacro %}{% call(a, b=9) m() %}{{ a }}+{{ b }}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}{% if caller %}y{% else %}n{% endif %}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}", "{% call 5 %}{% endcall %}", "{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}", "{% macro m(caller) %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro fact(n) %}{{ 1 if n < 2 else n * (fact(n - 1) | int) }}{% endmacro %}{{ fact(5) }}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m() %}{{ later }}{% endmacro %}{% set later = 1 %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% macro m(x=i) %}{{ x }}{% endmacro %}{{ m() }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(3) }}", "{% macro m(a=b, b=2) %}[{{ a }}]{% endmacro %}{{ m() }}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% for x in [1, 2] %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% for x in [1] %}{% macro m() %}q{% endmacro %}{% endfor %}{{ m() }}", "{% if yes %}{% macro m() %}q{% endmacro %}{% endif %}{{ m() }}", "{% macro m() %}  x  {% endmacro %}[{{ m() | trim }}]", "{% macro m() %}{{ loop }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}|", "{% macro m() %}{% macro n() %}in{% endmacro %}{{ n() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{{ m.name }} {{ m }} {{ m is callable }} {{ m is defined }}", "{% macro m() %}x{% endmacro %}{{ m() is string }} {{ m() ~ 1 }} {{ m() + 'y' }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }} {{ m(**{'a': 2}) }}", "{% macro m(a) %}{% endmacro %}{{ m(**5) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(a=1, **{'a': 2}) }}",
    "{% macro m(x) %}{% for y in x %}{{ y }}{% if not loop.last %},{% endif %}{% endfor %}{% endmacro %}{{ m([1, 2]) }}", "{% set f = namespace() %}{% macro m() %}{% set f.x = 1 %}{% endmacro %}{{ m() }}{{ f.x }}", "{% macro m(s) %}{{ s }}{% endmacro %}{{ m('arg') }}{{ s }}", "{% macro m() %}{{ s }}{% endmacro %}{% for s in ['loop'] %}{{ m() }}{% endfor %}", "{% macro outer() %}[{{ caller() }}]{% endmacro %}{% macro inner() %}({{ caller() }}){% endmacro %}{% call outer() %}{% call inner() %}x{% endcall %}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{% for x in [1, 2] %}{% call m() %}{{ x }}{{ loop.last }}{% endcall %}{% endfor %}", "{% macro list() %}{% set out = [] %}{{ out }}{% endmacro %}{{ list() }}", "{% macro m(a,) %}{% endmacro %}",
    "{{ raise_exception('boom ' ~ i) }}", "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}", "{% if i %}{{ raise_exception(\"it's {}\") }}{% endif %}", "{{ raise_exception() }}", "{{ 'a' ~ raise_exception(5) }}", "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y %H:%M:%S %A %j %%') }}", "{{ strftime_now('') }}|{{ strftime_now('%z%Z') }}|{{ strftime_now('%B %-d') }}", "{{ strftime_now() }}", "{{ strftime_now(5) }}",
]
TEXT_METHODS = [
    "{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.swapcase() }} {{ 'hELLO w'.capitalize() }}", "{{ u.upper() }} {{ u.lower() }} {{ 'ΑΣ ΣΑΣ'.lower() }} {{ 'ﬁn ǆ'.title() }} {{ 'ß'.upper() }} {{ 'Straße'.casefold() }}", "[{{ padded.strip() }}] [{{ padded.lstrip() }}] [{{ padded.rstrip() }}]", "{{ 'xxabcxx'.strip('x') }} {{ 'abcba'.strip('ab') }} {{ 'xaxbx'.lstrip('x') }} {{ 'xaxbx'.rstrip('xb') }} {{ '\\u2003a\\u00a0'.strip() }}|", "{{ s.split() }} {{ s.split(', ') }} {{ s.split('o') }} {{ s.split('o', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ padded.split() }} {{ padded.split(' ') }}",
    "{{ 'a b  c'.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b  c d'.rsplit(maxsplit=2) }} {{ 'a,b'.split(sep=',') }} {{ 'aXbX'.rsplit('X') }} {{ 'aaa'.split('aa') }} {{ 'aaa'.rsplit('aa') }}", "{{ 'a'.split('') }}", "{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\\rb\\r\\nc\\x0bd\\u2028e'.splitlines() }} {{ ''.splitlines() }}", "{{ s.startswith('Hell') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.startswith('e', 1) }} {{ s.endswith('Hello', 0, 5) }}", "{{ s.startswith(1) }}", "{{ s.startswith(missing) }}", "{{ s.replace('o', '0') }} {{ s.replace('o', '0', 1) }} {{ s.replace('', '-') }} {{ s.replace('l', '', 2) }} {{ 'aaa'.replace('aa', 'b') }} {{ 'ab'.replace('', '-', 2) }}",
    "{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.find('o', 5) }} {{ u.find('日') }} {{ s.find('') }} {{ s.find('', 50) }} {{ s.rfind('') }} {{ s.find('o', -5) }}", "{{ s.index('W') }} {{ s.rindex('l') }}", "{{ s.index('zz') }}", "{{ s.count('l') }} {{ s.count('') }} {{ 'aaaa'.count('aa') }} {{ s.count('o', 5) }}", "{{ ', '.join(['a', 'b']) }} {{ '-'.join('abc') }} {{ ''.join([]) }}|", "{{ ','.join([1, 2]) }}", "{{ ','.join(5) }}", "{{ 'abc'.center(9, '*') }} {{ 'abc'.center(8) }}|{{ 'ab'.center(5) }}|{{ 'abc'.ljust(6, '.') }} {{ 'abc'.rjust(6) }} {{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ 'é'.rjust(3, '日') }}", "{{ 'a'.center(5, 'ab') }}",
    "{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}", "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'x'.removeprefix('y') }} {{ 'x'.removesuffix('') }}", "{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ ' \\n'.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ '1a'.islower() }} {{ 'Ab Cd'.istitle() }} {{ '²'.isdigit() }} {{ '½'.isnumeric() }} {{ '٣'.isdecimal() }} {{ 'é'.isascii() }} {{ 'a\\n'.isprintable() }}", "{{ 'a\\tb'.expandtabs() }}| {{ 'a\\tb'.expandtabs(4) }}|",
    "{{ 'abc'.upper(1) }}", "{{ 'abc'.replace('a') }}", "{{ 'abc'.strip(5) }}", "{{ 'abc'.nope }}|", "{{ s.upper().lower().title() }}", "{{ '{} {}'.format(1, 'b') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=5) }} {{ '{{}}'.format() }}", "{{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:#x}|{:+d}|{:e}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 255, 5, 12345.678) }}", "{{ '{!r} {!s}'.format('a', 'b') }} {{ '{0.a} {0[b]}'.format({'a': 1, 'b': 2}) }}", "{{ '{:*^9}|{:_>4}|{:=+5}|{:%}|{:g}|{:b}|{:o}|{:X}|{:10.3f}|{:<8.2}|{:.3}'.format('mid', 'r', 3, 0.25, 1e10, 5, 8, 255, 2.5, 'trunc', 'longer') }}", "{{ '{:{}}'.format('a', 4) }}| {{ '{:.{p}f}'.format(2.0, p=3) }} {{ '{:,.2f} {:_}'.format(1234567.891, 1234567) }} {{ '{:08,}'.format(1234) }} {{ '{:d}'.format(true) }} {{ '{:5}'.format(true) }} {{ '{}'.format(true) }}",
    "{{ '{}'.format() }}", "{{ '{x}'.format() }}", "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{0}{}'.format(1, 2) }}", "{{ '{:d}'.format('a') }}", "{{ '{:d}'.format(1.5) }}", "{{ '{:s}'.format(1) }}", "{{ '{:q}'.format(1) }}", "{{ '{:5}'.format(none) }}", "{{ '{:5}'.format([1]) }}", "{{ '{}'.format([1, none]) }} {{ '{}'.format(1.0) }} {{ '{:.1f}'.format(0.25) }} {{ '{:.0f}'.format(2.5) }}",
    "{{ '%s %s' % ('a', 1) }} {{ '%d%%' % 50 }} {{ '%5.2f|%-5s|%05d|%+d|%x|%X|%o|%e|%g|%c|%r' % (3.14159, 'ab', 42, 7, 255, 255, 8, 1234.5, 0.0001, 'z', 'q') }}", "{{ '%s' % 'a' }} {{ '%s' % [1, 2] }} {{ '%s' % none }} {{ '%(a)s-%(b)d' % {'a': 'x', 'b': 2} }} {{ 'plain' % {} }} {{ 'plain' % [] }}", "{{ '%s %s' % 'a' }}", "{{ '%s' % ('a', 'b') }}", "{{ '%d' % 'a' }}", "{{ '%d' % 1.9 }} {{ '%i' % true }} {{ '%.3d' % 5 }} {{ '%.2s' % 'abc' }} {{ '%5s|%-5s|' % ('a', 'b') }} {{ '% d' % 5 }} {{ '%#x' % 255 }} {{ '%s' % missing }}|", "{{ '%x' % 1.5 }}", "{{ '%' % 1 }}", "{{ '%q' % 1 }}", "{{ '%(a)s' % 5 }}", "{{ '%(z)s' % {'a': 1} }}", "{{ 'a' % 1 }}", "{{ '%c' % 65 }} {{ '%c' % 'ab' }}", "{{ '%s and %s' | format('a', 'b') }} {{ '%(x)s' | format(x=1) }}", "{{ '%.10g %.3e %f' % (0.1, 12345.6789, 1e10) }} {{ '%6.1f|%-8.3f|%08.2f' % (2.25, 2.5, -3.14159) }}",
]
FILTERS = [
    "{{ d | tojson }} {{ mixed | tojson }} {{ html | tojson }} {{ u | tojson }} {{ quote | tojson }} {{ '\\x00\\x1f\\x7f\\u2028' | tojson }}", "{{ d | tojson(indent=2) }}", "{{ nested | tojson(indent=4) }} {{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }}", "{{ deep | tojson(indent='\t') }}", "{{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ u | tojson(ensure_ascii=true) }} {{ d | tojson(indent=0) }}", "{{ (1, 2) | tojson }} {{ 1.0 | tojson }} {{ 1e100 | tojson }} {{ big | tojson }} {{ none | tojson }} {{ true | tojson }} {{ (1e308 * 10) | tojson }} {{ 'a' | tojson }}", "{{ {1: 2, none: 3, true: 4, 2.5: 5} | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{{ missing | tojson }}", "{{ range(3) | tojson }}", "{{ d.items() | tojson }}", "{{ namespace() | tojson }}", "{{ d | tojson(indent=none) }} {{ d | tojson(true) }} {{ d | tojson(false, 1) }}", "{{ [1, [2, {'a': [3]}]] | tojson(indent=2, separators=(';', '=')) }}", "{{ d | tojson(nope=1) }}",
    "{{ s | length }} {{ numbers | count }} {{ d | length }} {{ missing | length }} {{ u | length }} {{ range(4) | length }}", "{{ 5 | length }}", "{{ none | length }}", "{{ numbers | first }} {{ numbers | last }} {{ s | first }} {{ s | last }} {{ [] | first }}| {{ [] | last }}| {{ d | first }} {{ d | last }}", "{{ numbers | map('string') | last }}", "{{ numbers | map('string') | first }} {{ 5 | first }}", "{{ numbers | join(', ') }} {{ numbers | join }} {{ mixed | join('|') }} {{ people | join(', ', attribute='name') }} {{ missing | join(',') }}|{{ 'abc' | join('-') }} {{ numbers | join(1) }}", "{{ 5 | join }}", "{{ s | upper }} {{ s | lower }} {{ 'hello wORLD-foo (bar)' | title }} {{ 'hELLO' | capitalize }} {{ 5 | upper }} {{ none | lower }} {{ u | upper }} {{ missing | upper }}|", "[{{ padded | trim }}] {{ 'xxaxx' | trim('x') }} {{ 5 | trim }}",
    "{{ s | replace('o', '0') }} {{ s | replace('o', '0', 1) }} {{ 123 | replace(2, 'x') }} {{ s | replace('', '.') }} {{ s | replace('l', 'L', count=2) }}", "{{ s | replace('o') }}", "{{ missing | default('d') }} {{ none | default('d') }} {{ none | default('d', true) }} {{ '' | default('d', boolean=true) }} {{ missing | d }}| {{ 0 | d('z') }} {{ missing | default }}|", "{{ deep.q | default('x') }} {{ deep.q.r | default('x') }}", "{{ numbers | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ numbers | sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }} {{ people | sort(attribute='age,name', reverse=true) | map(attribute='name') | list }} {{ 'hello' | sort }}", "{{ mixed | sort }}", "{{ [none, 1] | sort }}",
    "{{ numbers | reverse | list }} {{ s | reverse }} {{ u | reverse }} {{ (1, 2) | reverse | list }} {{ d | reverse | list }}", "{{ 5 | reverse }}", "{{ [1, 2, 1, 3, 2] | unique | list }} {{ words | unique | list }} {{ words | unique(true) | list }} {{ people | unique(attribute='age') | map(attribute='name') | list }} {{ [1, 1.0, true, '1'] | unique | list }}", "{{ [[1], [1]] | unique | list }}", "{{ people | map(attribute='name') | list }} {{ people | map(attribute='address.city') | list }} {{ people | map(attribute='tags.0', default='-') | list }} {{ words | map('upper') | list }} {{ numbers | map('string') | join('') }} {{ ['a b'] | map('replace', 'a', 'z') | list }} {{ nested | map('first') | list }} {{ none | map('upper') | list }}", "{{ words | map('nope') | list }}", "{{ words | map | list }}", "{{ words | map(attribute='x', foo=1) | list }}", "{{ 5 | map('upper') | list }}", "{{ people | map(attribute='nope.x') | list }}",
    "{{ numbers | select('odd') | list }} {{ mixed | select | list }} {{ numbers | select('greaterthan', 1) | list }} {{ words | select('equalto', 'fig') | list }} {{ [1, none, 2] | select('none') | list }} {{ mixed | select('string') | list }} {{ numbers | select('in', [1, 2]) | list }}", "{{ numbers | reject('odd') | list }} {{ mixed | reject | list }}", "{{ people | selectattr('age', 'equalto', 31) | map(attribute='name') | list }} {{ people | selectattr('tags') | map(attribute='name') | list }} {{ people | rejectattr('tags') | map(attribute='name') | list }} {{ people | selectattr('address.city', 'in', ['Rom']) | list | length }} {{ people | selectattr('nope') | list }} {{ people | selectattr('nope', 'defined') | list }} {{ people | selectattr('age', '>', 30) | list | length }}", "{{ numbers | select('nope') | list }}", "{{ numbers | select('equalto') | list }}", "{{ people | selectattr | list }}", "{{ numbers | select('odd') | first }}",
    "{{ d | items | list }} {{ missing | items | list }}", "{{ 5 | items | list }}", "{{ d | dictsort }} {{ d | dictsort(true) }} {{ {'x': 2, 'y': 1} | dictsort(by='value') }} {{ {'x': 2, 'y': 1} | dictsort(false, 'value', true) }}", "{{ d | dictsort(by='nope') }}", "{{ d | list }} {{ s | list }} {{ range(3) | list }} {{ missing | list }} {{ d.items() | list }}", "{{ 5 | list }}", "{{ 5 | string }} {{ none | string }} {{ 1.0 | string }} {{ [1] | string }} {{ true | string + 'x' }}", "{{ '42' | int }} {{ '42.7' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.99 | int }} {{ -3.99 | int }} {{ none | int }} {{ '0x1f' | int(base=16) }} {{ 'ff' | int(0, 16) }} {{ '1_000' | int }} {{ ' 7 ' | int }} {{ true | int }} {{ '' | int }} {{ [] | int(default=9) }} {{ '0b11' | int(0, 2) }} {{ '1e3' | int }}", "{{ missing | int }}", "{{ '1.5' | float }} {{ 'x' | float }} {{ 'x' | float(2.5) }} {{ 3 | float }} {{ 'inf' | float }} {{ '-1e5' | float }} {{ none | float }} {{ '1_0.5' | float }} {{ ' 2 ' | float }} {{ 'nan' | float }} {{ '0x10' | float }} {{ true | float }}", "{{ missing | float }}",
    "{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 1234.5 | round(-2) }} {{ 5 | round }} {{ 7 | round(2) }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | round(method='floor') }} {{ 2.123 | round(2, 'ceil') }} {{ 15 | round(-1) }} {{ 25 | round(-1) }} {{ -2.5 | round }} {{ 0.5 | round | int }} {{ true | round }} {{ -1.5 | round(0, 'floor') }}", "{{ 'a' | round }}", "{{ 1 | round(method='x') }}", "{{ -5 | abs }} {{ 5.5 | abs }} {{ negative | abs }} {{ true | abs }}", "{{ 'a' | abs }}", "{{ numbers | sum }} {{ people | sum(attribute='age') }} {{ numbers | sum(start=10) }} {{ [] | sum }} {{ [1.5, 2] | sum }} {{ [[1], [2]] | sum(start=[]) }}", "{{ ['a'] | sum }}", "{{ numbers | min }} {{ numbers | max }} {{ words | min }} {{ words | max }} {{ people | max(attribute='age') | attr('x') is defined }} {{ (people | min(attribute='age')).name }} {{ [] | max }}|{{ words | max(true) }}", "{{ mixed | max }}",
    "{{ lines | indent }}", "{{ lines | indent(2, true) }}|{{ lines | indent(2, blank=true) }}|{{ lines | indent('> ', first=true) }}|{{ 'a' | indent }}|{{ '' | indent }}|{{ 'a\\n' | indent(width=3) }}", "{{ 5 | indent }}", "{{ missing | indent }}", "{{ html | e }} {{ html | escape }} {{ html | safe }} {{ (html | safe) ~ '<' }} {{ (html | e) | e }} {{ html | forceescape }} {{ '<' | e + '<' }} {{ '<' + ('<' | e) }} {{ [html | safe] }} {{ 5 | e }} {{ missing | e }}| {{ (html | safe) is escaped }} {{ (html | e) | tojson }} {{ ('<b>' | safe).upper() + '<' }} {{ ('a' | safe) * 2 + '>' }} {{ ('a<' | safe).replace('a', '<') }} {{ ('<' | safe).join(['<', '>']) }} {{ ('a,b' | safe).split(',') }}",
    "{{ numbers | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }} {{ [] | batch(2) | list }} {{ [1, 2, 3, 4, 5] | slice(2) | list }} {{ [1, 2, 3, 4, 5] | slice(3, 'x') | list }}", "{{ [1] | slice(0) | list }}", "{{ people | groupby('age') }}", "{% for age, group in people | groupby('age') %}{{ age }}:{{ group | map(attribute='name') | join(',') }};{% endfor %}", "{% for g in people | groupby('address.city') %}{{ g.grouper }}={{ g.list | length }} {% endfor %}", "{{ people | groupby('nope', default='?') | list | length }} {{ people | groupby('address.city', case_sensitive=true) | map('first') | list }}", "{{ s | truncate(8) }} {{ s | truncate(5, true, '', 0) }} {{ 'one two three' | truncate(9, end='~', leeway=0) }} {{ s | truncate(5) }}", "{{ s | truncate(2) }}", "{{ s | wordcount }} {{ u | wordcount }} {{ 'a_b c-d' | wordcount }}", "{{ 'abc' | center(7) }}|{{ 5 | center(4) }}|", "{{ 'a b/ü?&' | urlencode }} {{ {'a': 'x y', 'b': 1} | urlencode }} {{ [('k', '/')] | urlencode }}",
    "{{ s | upper | lower | title }} {{ numbers | sort | reverse | list }} {{ -1 | abs }} {{ 'a' | upper ~ 'b' | upper }} {{ not s | length }}", "{{ 1 + 2 | string ~ 'x' }}", "{{ s|upper|replace('HELLO','bye') }}", "{{ numbers | length > 2 }} {{ numbers | length - 1 }} {{ (numbers | length) * 2 }}", "{{ s | upper | nope }}", "{{ s | default(none) }}", "{% set g = numbers | map('string') %}{{ g | list }}{{ g | list }}", "{% set g = numbers | map('string') %}{% for x in g %}{{ x }}{% break %}{% endfor %}|", "{{ (numbers | map('string')) is iterable }} {{ (numbers | map('string')) is sequence }} {{ (numbers | map('string')) and 1 }}", "{{ numbers | map('string') | length }}", "{{ (numbers | map('string'))[0] }}|", "{{ numbers | list is sequence }} {{ d.items() is sequence }} {{ d.items() is iterable }}",
]
TESTS = [
    "{{ i is defined }}{{ missing is defined }}{{ missing is undefined }}{{ nothing is defined }}{{ nothing is none }}{{ i is none }}{{ deep.q is defined }}", "{{ i is number }}{{ f is number }}{{ yes is number }}{{ s is number }}{{ i is integer }}{{ yes is integer }}{{ f is float }}{{ i is float }}{{ yes is boolean }}{{ i is boolean }}", "{{ s is string }}{{ d is mapping }}{{ numbers is mapping }}{{ s is sequence }}{{ numbers is sequence }}{{ d is sequence }}{{ i is sequence }}{{ missing is sequence }}{{ s is iterable }}{{ i is iterable }}{{ missing is iterable }}{{ none is iterable }}{{ range(2) is sequence }}{{ namespace() is mapping }}{{ namespace() is iterable }}", "{{ yes is true }}{{ 1 is true }}{{ no is false }}{{ 0 is false }}{{ i is odd }}{{ i is even }}{{ i is divisibleby(7) }}{{ 2.0 is even }}",
    "{{ 'a' is lower }}{{ 'A' is upper }}{{ 'aB' is lower }}{{ 5 is lower }}{{ '' is upper }}", "{{ 1 is eq 1 }}{{ 1 is equalto 2 }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is ge 2 }}{{ 3 is gt 2 }}{{ 1 is le(1) }}{{ 1 is lessthan 0 }}{{ 1 is greaterthan 0 }}", "{{ none is sameas none }}{{ true is sameas true }}{{ 1 is sameas true }}{{ d is sameas d }}{{ [] is sameas [] }}", "{{ range is callable }}{{ s.upper is callable }}{{ s is callable }}{{ 'upper' is filter }}{{ 'nope' is filter }}{{ 'odd' is test }}", "{{ 'a' is in 'abc' }}{{ 1 is in [2] }}{{ 1 is not in [2] }}", "{{ s is odd }}", "{{ 1 is divisibleby 0 }}", "{{ 1 is lt 'a' }}", "{{ missing is none }}{{ missing is string }}{{ missing is number }}{{ missing is mapping }}{{ missing is callable }}{{ missing is lower }}", "{{ missing is odd }}", "{{ i is not none and i is not string }}", "{{ not i is none }}", "{{ i is defined and i > 3 }}{{ i is not defined or i > 3 }}", "{{ (i is defined) ~ 'x' }}", "{{ 1 is defined(2) }}", "{{ 5 is string or 'x' }}", "{{ 'a' if i is number else 'b' }}", "{{ i is number and s is string and numbers is iterable and numbers is not string }}", "{{ [1] is eq [1] }}",
    "{{ yes }}{{ no }}{{ nothing }}{{ [yes, no, nothing] }}", "{{ missing }}|{{ [missing] }}|{{ {'a': missing} }}|{{ missing | string }}|", "{{ lipsum is defined }} {{ cycler is defined }} {{ range is defined }} {{ dict is defined }} {{ namespace is defined }} {{ loop is defined }} {{ caller is defined }} {{ super is defined }}",
]
TEMPLATES = [
    ("empty", WHITESPACE + LITERALS),
    ("values", OPERATORS + ACCESS + STATEMENTS + MACROS + TEXT_METHODS + FILTERS + TESTS),
]
