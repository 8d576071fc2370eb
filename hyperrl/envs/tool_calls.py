"""Reading tool calls out of an action: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

Nothing here raises on any text. What is wrong with a call becomes its status, what was mended is recorded
as a repair, and the text of every attempt is kept. One broken call never hides a later good one.

The core works on bytes, so that the same code reads text (:func:`parse_tool_calls`) and sampled tokens,
whose bytes need not be valid UTF-8 (:mod:`hyperrl.agents.rendering.parser`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hyperrl.envs.python_literal import read_literal, unique_keys
from hyperrl.sampling import ToolCall

__all__ = [
    "CallBody",
    "ParsedText",
    "parse_action_bytes",
    "parse_arguments",
    "parse_call_body",
    "parse_tool_calls",
    "read_json",
]

OPEN, CLOSE = b"<tool_call>", b"</tool_call>"
THINK, END_THINK = b"<think>", b"</think>"
MAX_DEPTH = 64
"""Arguments nested deeper than this are ``invalid_json``: code that walks them must not overflow."""

_MARKS = re.compile(rb'\\.|"|' + OPEN + b"|" + CLOSE, re.DOTALL)
_PYTHON = re.compile(
    r"""(?P<double>"(?:[^"\\]|\\.)*"?)|(?P<single>'(?P<inner>(?:[^'\\]|\\.)*)(?P<end>')?)|(?P<comma>,(?=\s*[}\]]))"""
    r"""|\b(?P<word>True|False|None)\b""",
    re.DOTALL,
)
_CLOSERS_TRIED = 3
_WORDS = {"True": "true", "False": "false", "None": "null"}
_QUOTES = re.compile(r"\\'|\\.|\"", re.DOTALL)
_ESCAPES = re.compile(r"\\.", re.DOTALL)
_CALL_KEYS = frozenset(("name", "id", "type", "index"))

Status = Literal["ok", "invalid_json", "unclosed", "missing_name", "malformed"]
BytesErrors = Literal["replace", "surrogatepass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBody:
    """What stands between the markers of one call.

    Attributes:
        name: the tool's name; empty if none could be read.
        arguments: the arguments as an object; ``None`` unless ``status`` is ``ok``.
        status: ``ok``; ``invalid_json``: not JSON even after repair, or a key twice with different values;
            ``missing_name``: no name, or one that is no string; ``malformed``: JSON, but no call, or
            arguments that are no object; ``unclosed``.
        repairs: what was mended, in order: ``raw_newline`` (a control character inside a string),
            ``trailing_comma``, ``python_literal``, ``list_of_calls``, ``double_encoded``, ``parameters``
            (instead of ``arguments``), ``missing_arguments`` (taken as none, where there is nothing else
            either), ``function_object`` (name and arguments inside ``function``), ``closer_in_string``.
    """

    name: str = ""
    arguments: Mapping[str, Any] | None = None
    status: Status
    repairs: tuple[str, ...] = ()


class ParsedText(NamedTuple):
    """An action, taken apart.

    Attributes:
        content: what is neither reasoning nor a call, including text between and after calls; stripped at
            both ends where something was taken out.
        reasoning: what stands in a leading ``<think>`` block; an unclosed one takes all the rest.
        tool_calls: every attempted call outside the reasoning, malformed ones too.
    """

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class _Attempt:
    start: int
    end: int
    bodies: Sequence[CallBody]


def parse_tool_calls(text: str, *, id_prefix: str) -> ParsedText:
    """Take a text apart; never raises. Call ``n`` gets the id ``<id_prefix>_<n>``. Spans are not known."""
    data = text.encode("utf-8", "surrogatepass")
    parsed = parse_action_bytes(data, id_prefix=id_prefix, errors="surrogatepass")
    calls = tuple(dataclasses.replace(call, span=None) for call in parsed.tool_calls)
    return parsed._replace(tool_calls=calls)


def parse_action_bytes(
    data: bytes, *, id_prefix: str, errors: BytesErrors = "replace", reasoning_opened: bool = False
) -> ParsedText:
    """Take the bytes of an action apart; never raises.

    Args:
        data: UTF-8, as far as the policy got it right.
        id_prefix: call ``n`` gets the id ``<id_prefix>_<n>``.
        errors: how bytes that are no UTF-8 become text.
        reasoning_opened: the prompt ended in an open ``<think>``, so the action begins inside it.

    Returns:
        The parts; the ``span`` of a call counts *bytes* of ``data``.
    """
    if data.find(b"<") < 0 and not reasoning_opened:  # neither reasoning nor calls
        return ParsedText(data.decode("utf-8", errors), "", ())
    reasoning, position = _split_reasoning(data, opened=reasoning_opened)
    pieces: list[bytes] = []
    calls: list[ToolCall] = []
    stripped = position > 0
    while (opened := data.find(OPEN, position)) >= 0:
        attempt = _read_attempt(data, opened, errors)
        pieces.append(data[position:opened])
        calls += _tool_calls(data, attempt, id_prefix, len(calls), errors)
        position, stripped = attempt.end, True
    pieces.append(data[position:])
    content = b"".join(pieces).decode("utf-8", errors)
    return ParsedText(
        content=content.strip() if stripped else content,
        reasoning=reasoning.decode("utf-8", errors).strip(),
        tool_calls=tuple(calls),
    )


def parse_call_body(text: str) -> list[CallBody]:
    """Read what stands between the markers; never raises, and never returns an empty list."""
    try:
        value, repairs = read_json(text)
        if isinstance(value, str):
            value, more = read_json(value)
            repairs += ("double_encoded", *more)
    except ValueError:
        return [CallBody(status="invalid_json")]
    if isinstance(value, list) and value:
        return [_call(item, (*repairs, "list_of_calls")) for item in value]
    return [_call(value, repairs)]


def parse_arguments(name: object, arguments: object) -> CallBody:
    """Read a call whose name and arguments an endpoint has taken apart already; never raises.

    Args:
        name: the tool's name, as it came.
        arguments: JSON text, as chat-completions has it, or an object, as some servers send.
    """
    if not isinstance(name, str) or not name.strip():
        return CallBody(status="missing_name")
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return CallBody(name=name, arguments={}, status="ok", repairs=("missing_arguments",))
    repairs: tuple[str, ...] = ()
    try:
        value = arguments
        for nested in range(2):
            if isinstance(value, str):
                value, more = read_json(value)
                repairs += (*(("double_encoded",) if nested else ()), *more)
    except ValueError:
        return CallBody(name=name, status="invalid_json")
    if not isinstance(value, dict):
        return CallBody(name=name, status="malformed", repairs=repairs)
    return CallBody(name=name, arguments=value, status="ok", repairs=repairs)


def _tool_calls(
    data: bytes, attempt: _Attempt, id_prefix: str, count: int, errors: BytesErrors
) -> list[ToolCall]:
    raw = data[attempt.start : attempt.end].decode("utf-8", errors)
    return [
        ToolCall(
            call_id=f"{id_prefix}_{count + i}",
            name=body.name,
            arguments=body.arguments,
            raw=raw,
            status=body.status,
            repairs=body.repairs,
            span=(attempt.start, attempt.end),
        )
        for i, body in enumerate(attempt.bodies)
    ]


def _split_reasoning(data: bytes, *, opened: bool) -> tuple[bytes, int]:
    """Return the reasoning and where the rest begins."""
    start = 0
    if not opened:
        lead = len(data) - len(data.lstrip())
        if not data.startswith(THINK, lead):
            return b"", 0
        start = lead + len(THINK)
    end = data.find(END_THINK, start)
    if end < 0:
        return data[start:], len(data)
    return data[start:end], end + len(END_THINK)


def _read_attempt(data: bytes, opened: int, errors: BytesErrors) -> _Attempt:
    """Read the call that opens at ``opened``.

    The call ends at the first closer outside a JSON string. If what is found so is no JSON, a quote may be
    missing, and the first marker of any kind ends it instead; or the strings are quoted as in Python, and the
    closer stood in one of them.
    """
    start = opened + len(OPEN)
    marks = _marks(data, start)
    first, last = marks[0], marks[-1]
    skipped = any(data.startswith(CLOSE, mark) for mark in marks[:-1])
    attempt = _close(data, opened, last, errors)
    if attempt.bodies[0].status not in ("invalid_json", "unclosed"):
        return _with_repair(attempt, "closer_in_string") if skipped else attempt
    shorter = attempt if len(marks) == 1 else _close(data, opened, first, errors)
    if shorter.bodies[0].status == "invalid_json" and b"'" in data[start:first]:
        return _read_python_quoted(data, opened, first, errors) or shorter
    return shorter


def _read_python_quoted(data: bytes, opened: int, mark: int, errors: BytesErrors) -> _Attempt | None:
    """Read a call up to one of the next closers after ``mark``, if that makes Python literals of it."""
    for _ in range(_CLOSERS_TRIED):
        mark = data.find(CLOSE, mark + 1)
        if mark < 0:
            return None
        attempt = _close(data, opened, mark, errors)
        if all(body.status == "ok" and "python_literal" in body.repairs for body in attempt.bodies):
            return _with_repair(attempt, "closer_in_string")
    return None


def _marks(data: bytes, start: int) -> list[int]:
    """Return where markers stand, up to the first one outside a string (or the end of the data)."""
    found: list[int] = []
    in_string = False
    for match in _MARKS.finditer(data, start):
        mark = match.group()
        if mark == b'"':
            in_string = not in_string
        elif mark in (OPEN, CLOSE):
            found.append(match.start())
            if not in_string:
                return found
    return [*found, len(data)]


def _close(data: bytes, opened: int, mark: int, errors: BytesErrors) -> _Attempt:
    """Read the body up to ``mark``; only a closer there really closes the call."""
    bodies = parse_call_body(data[opened + len(OPEN) : mark].decode("utf-8", errors))
    if data.startswith(CLOSE, mark):
        return _Attempt(opened, mark + len(CLOSE), bodies)
    return _Attempt(opened, mark, [CallBody(name=bodies[0].name, status="unclosed")])


def _with_repair(attempt: _Attempt, repair: str) -> _Attempt:
    bodies = [dataclasses.replace(body, repairs=(*body.repairs, repair)) for body in attempt.bodies]
    return dataclasses.replace(attempt, bodies=bodies)


def _call(value: Any, repairs: tuple[str, ...]) -> CallBody:
    if not isinstance(value, dict):
        return CallBody(status="malformed", repairs=repairs)
    if "name" not in value and isinstance(value.get("function"), dict):
        value, repairs = value["function"], (*repairs, "function_object")
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        return CallBody(status="missing_name", repairs=repairs)
    arguments, more = _arguments(value)
    status: Status = "malformed" if arguments is None else "ok"
    return CallBody(name=name, arguments=arguments, status=status, repairs=(*repairs, *more))


def _arguments(value: dict[str, Any]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    if "parameters" in value and value.get("arguments", value["parameters"]) != value["parameters"]:
        return None, ()  # which of them are meant?
    repairs: tuple[str, ...] = ()
    key = "arguments" if "arguments" in value else "parameters"
    if key not in value:  # arguments under another key are not the same as none
        return (None, ()) if value.keys() - _CALL_KEYS else ({}, ("missing_arguments",))
    if key == "parameters":
        repairs = ("parameters",)
    arguments = value[key]
    if isinstance(arguments, str):
        try:
            arguments, more = read_json(arguments)
        except ValueError:
            return None, repairs
        repairs += ("double_encoded", *more)
    return (arguments if isinstance(arguments, dict) else None), repairs


def read_json(text: str) -> tuple[Any, tuple[str, ...]]:
    """Return the value of JSON as policies write it, and the repairs that it took. Raises ValueError."""
    with contextlib.suppress(ValueError):
        return _decode(text)
    rewritten, repairs = _as_json(text)
    if repairs:
        with contextlib.suppress(ValueError):
            value, more = _decode(rewritten)
            return value, (*repairs, *more)
    return _not_too_deep(read_literal(text)), ("python_literal",)


def _decode(text: str) -> tuple[Any, tuple[str, ...]]:
    try:
        return _guarded(_STRICT, text), ()
    except ValueError:
        return _guarded(_LENIENT, text), ("raw_newline",)


def _guarded(decoder: json.JSONDecoder, text: str) -> Any:
    try:
        value = decoder.decode(text.strip())
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return _not_too_deep(value)


def _not_too_deep(value: Any) -> Any:
    if _too_deep(value):
        raise ValueError("nested too deep")
    return value


def _as_json(text: str) -> tuple[str, tuple[str, ...]]:
    """Rewrite Python literals and trailing commas, outside strings, in one linear pass."""
    found: set[str] = set()

    def rewrite(match: re.Match[str]) -> str:
        if match["double"] is not None:
            mended = _ESCAPES.sub(lambda escape: escape[0].replace("\\'", "'"), match[0])
            found.update(["python_literal"] if mended != match[0] else [])
            return mended
        if match["single"] and not match["end"]:
            return match[0]
        if match["comma"]:
            found.add("trailing_comma")
            return ""
        found.add("python_literal")
        if match["word"]:
            return _WORDS[match["word"]]
        return '"' + _QUOTES.sub(_requote, match["inner"]) + '"'

    return _PYTHON.sub(rewrite, text), tuple(sorted(found))


def _requote(match: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(match[0], match[0])


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        ]
        if not level:
            return False
    return True


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large for a float")
    return number


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=unique_keys, parse_float=_finite, parse_constant=_refuse)
_LENIENT = json.JSONDecoder(
    object_pairs_hook=unique_keys, parse_float=_finite, parse_constant=_refuse, strict=False
)
