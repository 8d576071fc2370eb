"""Tool calls as policies really write them, with the status that each must get.

Used by the text parser's tests and by those of the parser over sampled tokens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    statuses: tuple[str, ...]
    arguments: tuple[dict[str, object] | None, ...] = ()
    repairs: tuple[str, ...] = ()
    content: str | None = None


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


GOOD = '{"name": "add", "arguments": {"a": 1}}'
A1: dict[str, object] = {"a": 1}

CASES = [
    Case("well formed", call(GOOD), ("ok",), (A1,), content=""),
    Case("text around", f"Let me see.\n{call(GOOD)}\nDone.", ("ok",), (A1,), content="Let me see.\n\nDone."),
    Case("two calls", f"{call(GOOD)}\n{call(GOOD)}", ("ok", "ok"), (A1, A1)),
    Case("no space at all", f"<tool_call>{GOOD}</tool_call>", ("ok",), (A1,)),
    Case("no call", "The answer is 4.\n", (), content="The answer is 4.\n"),
    Case("empty", "", (), content=""),
    Case("closer without opener", "a</tool_call>b", (), content="a</tool_call>b"),
    Case("empty body", "<tool_call></tool_call>", ("invalid_json",)),
    Case("blank body", call("  "), ("invalid_json",)),
    Case("no json", call("add(1)"), ("invalid_json",)),
    Case("truncated json", call('{"name": "add", "arguments": {"a": 1'), ("invalid_json",)),
    Case("missing closer", f"<tool_call>\n{GOOD}", ("unclosed",), (None,)),
    Case("cut in the middle", '<tool_call>\n{"name": "add", "argu', ("unclosed",), (None,)),
    Case("cut marker", f"{call(GOOD)}\n<tool_ca", ("ok",), (A1,), content="<tool_ca"),
    Case("opener only", "<tool_call>", ("unclosed",)),
    Case("opener again", f'<tool_call>{{"name": "add"\n{call(GOOD)}', ("unclosed", "ok"), (None, A1)),
    Case("bad then good", f"{call('{oops}')}\n{call(GOOD)}", ("invalid_json", "ok"), (None, A1)),
    Case(
        "lost quote then good", f"{call(chr(123) + chr(34) + 'name: 1}')}{call(GOOD)}", ("invalid_json", "ok")
    ),
    Case("no name", call('{"arguments": {"a": 1}}'), ("missing_name",), (None,)),
    Case("name is a number", call('{"name": 7, "arguments": {}}'), ("missing_name",)),
    Case("name is null", call('{"name": null, "arguments": {}}'), ("missing_name",)),
    Case("name is blank", call('{"name": " ", "arguments": {}}'), ("missing_name",)),
    Case("body is a number", call("42"), ("malformed",)),
    Case("body is null", call("null"), ("malformed",)),
    Case("body is a word", call('"add"'), ("invalid_json",)),
    Case("empty list", call("[]"), ("malformed",)),
    Case("list of numbers", call("[1, 2]"), ("malformed", "malformed")),
    Case("arguments are a list", call('{"name": "add", "arguments": [1]}'), ("malformed",), (None,)),
    Case("arguments are null", call('{"name": "add", "arguments": null}'), ("malformed",), (None,)),
    Case("arguments are a number", call('{"name": "add", "arguments": 3}'), ("malformed",), (None,)),
    Case("arguments are text", call('{"name": "add", "arguments": "a is 1"}'), ("malformed",), (None,)),
    Case("words after", call(GOOD + " please"), ("invalid_json",)),
    Case("one brace too many", call(GOOD + "}"), ("invalid_json",)),
    Case("code fence", call(f"```json\n{GOOD}\n```"), ("invalid_json",)),
    Case("NaN", call('{"name": "add", "arguments": {"a": NaN}}'), ("invalid_json",)),
    Case("infinite float", call('{"name": "add", "arguments": {"a": 1e999}}'), ("invalid_json",)),
    Case("6000 digits", call('{"name": "add", "arguments": {"a": ' + "7" * 6000 + "}}"), ("invalid_json",)),
    Case("100k brackets", call("[" * 100_000), ("invalid_json",)),
    Case("100k objects", call('{"a":' * 100_000), ("invalid_json",)),
    Case("deep", call('{"name": "f", "arguments": {"a": ' + "[" * 99 + "]" * 99 + "}}"), ("invalid_json",)),
    Case("in reasoning", f"<think>\n{call(GOOD)}\n</think>\n\nNo.", (), content="No."),
    Case("reasoning open", f"<think>\n{call(GOOD)}", (), content=""),
    Case("after reasoning", f"<think>\nhm\n</think>\n\n{call(GOOD)}", ("ok",), (A1,), content=""),
    Case(
        "raw newline",
        call('{"name": "run", "arguments": {"code": "line1\nline2\tx"}}'),
        ("ok",),
        ({"code": "line1\nline2\tx"},),
        ("raw_newline",),
    ),
    Case(
        "closer in a string",
        call('{"name": "say", "arguments": {"text": "a </tool_call> b"}}'),
        ("ok",),
        ({"text": "a </tool_call> b"},),
        ("closer_in_string",),
    ),
    Case(
        "opener in a string",
        call('{"name": "say", "arguments": {"text": "a <tool_call> b"}}'),
        ("ok",),
        ({"text": "a <tool_call> b"},),
    ),
    Case(
        "closer in a string in single quotes",
        call("""{'name': 'say', 'arguments': {'text': 'a </tool_call> b'}}""") + call(GOOD),
        ("ok", "ok"),
        ({"text": "a </tool_call> b"}, A1),
    ),
    Case(
        "an open single quote takes no later call with it",
        call("""{'name': 'say', 'arguments': {'text': 'a}}""") + call(GOOD),
        ("invalid_json", "ok"),
    ),
    Case("list of calls", call(f"[{GOOD}, {GOOD}]"), ("ok", "ok"), (A1, A1), ("list_of_calls",)),
    Case(
        "double encoded arguments",
        call('{"name": "add", "arguments": "{\\"a\\": 1}"}'),
        ("ok",),
        (A1,),
        ("double_encoded",),
    ),
    Case(
        "double encoded call",
        call('"{\\"name\\": \\"add\\", \\"arguments\\": {\\"a\\": 1}}"'),
        ("ok",),
        (A1,),
        ("double_encoded",),
    ),
    Case("parameters", call('{"name": "add", "parameters": {"a": 1}}'), ("ok",), (A1,), ("parameters",)),
    Case("no arguments", call('{"name": "now"}'), ("ok",), ({},), ("missing_arguments",)),
    Case("arguments under args", call('{"name": "add", "args": {"a": 1}}'), ("malformed",), (None,)),
    Case("arguments beside the name", call('{"name": "add", "a": 1}'), ("malformed",), (None,)),
    Case("no arguments but an id", call('{"id": "c1", "type": "function", "name": "now"}'), ("ok",), ({},)),
    Case(
        "function object",
        call(f'{{"type": "function", "function": {GOOD}}}'),
        ("ok",),
        (A1,),
        ("function_object",),
    ),
    Case(
        "escaped apostrophe",
        call("""{"name": "say", "arguments": {"text": "it\\'s \\\\'so"}}"""),
        ("ok",),
        ({"text": "it's \\'so"},),
        ("python_literal",),
    ),
    Case(
        "trailing comma",
        call('{"name": "add", "arguments": {"a": 1,},}'),
        ("ok",),
        (A1,),
        ("trailing_comma",),
    ),
    Case(
        "python literal",
        call("""{'name': 'say', 'arguments': {'text': 'it\\'s "so"', 'loud': True, 'to': None}}"""),
        ("ok",),
        ({"text": 'it\'s "so"', "loud": True, "to": None},),
        ("python_literal",),
    ),
    Case(
        "python tuple",
        call("""{'name': 'go', 'arguments': {'to': (1, -2), 'by': .5}}"""),
        ("ok",),
        ({"to": [1, -2], "by": 0.5},),
        ("python_literal",),
    ),
    Case(
        "text in three quotes",
        call('''{"name": "say", "arguments": {"text": """a "b"\nc"""}}'''),
        ("ok",),
        ({"text": 'a "b"\nc'},),
        ("python_literal",),
    ),
    Case("python set", call("{'name': 'add', 'arguments': {'a': {1, 2}}}"), ("invalid_json",)),
    Case("no Python literal", call("{'name': 'add', 'arguments': {'a': (0or 1,)}}"), ("invalid_json",)),
    Case("python bytes", call("{'name': 'add', 'arguments': {'a': b'x'}}"), ("invalid_json",)),
    Case(
        "two texts side by side", call("{'name': 'add', 'arguments': {'a': ('x' 'y',)}}"), ("invalid_json",)
    ),
    Case("odd escape", call("{'name': 'add', 'arguments': {'a': ('\\d',)}}"), ("invalid_json",)),
    Case("infinite python float", call("{'name': 'add', 'arguments': {'a': (1e999,)}}"), ("invalid_json",)),
    Case("code", call("add(a=1)"), ("invalid_json",)),
    Case("a key twice", call('{"name": "add", "arguments": {"a": 1, "a": 2}}'), ("invalid_json",)),
    Case("a key twice in Python", call("{'name': 'f', 'name': 'g', 'arguments': ()}"), ("invalid_json",)),
    Case("two names", call('{"name": "add", "name": "sub", "arguments": {"a": 1}}'), ("invalid_json",)),
    Case("a key twice, the same", call('{"name": "add", "arguments": {"a": 1, "a": 1}}'), ("ok",), (A1,)),
    Case(
        "arguments and other parameters",
        call('{"name": "add", "arguments": {"a": 1}, "parameters": {"a": 2}}'),
        ("malformed",),
    ),
    Case(
        "arguments and the same parameters",
        call('{"name": "add", "arguments": {"a": 1}, "parameters": {"a": 1}}'),
        ("ok",),
        (A1,),
    ),
    Case(
        "words in strings are kept",
        call('{"name": "say", "arguments": {"text": "True, ] None\'s",}}'),
        ("ok",),
        ({"text": "True, ] None's"},),
        ("trailing_comma",),
    ),
    Case(
        "unicode",
        call('{"name": "say", "arguments": {"text": "café 世界 🧑‍🚀 \\u00e9"}}'),
        ("ok",),
        ({"text": "café 世界 🧑‍🚀 é"},),
    ),
]
