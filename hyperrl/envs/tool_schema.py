"""From a Python function to the schema of a tool: signature for the types, docstring for the words."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NotRequired, cast

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from hyperrl.envs.encoded_arguments import decode_texts, refuse_strangers
from hyperrl.errors import ToolDefinitionError, nearest
from hyperrl.sampling import ToolSchema

__all__ = ["ToolSignature", "coerce_arguments", "read_signature"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ENTRY = re.compile(r"(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_MOST_PROBLEMS = 5
_PLACE_CHARS = 100
_SECTION = re.compile(r"[A-Z][A-Za-z ]+:\s*")
_PASSED_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSignature:
    """What is known of a tool from its function.

    Attributes:
        schema: the tool in the chat-completions shape.
        coerce: returns a mapping of arguments with the right types; ValueError where they do not fit, in
            words for the policy.
        is_method: the function's first parameter is ``self``.
    """

    schema: ToolSchema
    coerce: Callable[[Mapping[str, Any]], dict[str, Any]]
    is_method: bool


def read_signature(function: Callable[..., Any], name: str) -> ToolSignature:
    """Read the schema of a tool.

    Raises:
        ToolDefinitionError: the name cannot be called, there is no docstring, or a parameter lacks a
            type, lacks a description, or cannot be passed by name.
    """
    if not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"tool {name!r}: a tool's name has 1 to 64 letters, digits, underscores or dashes"
        )
    parameters = dict(inspect.signature(function).parameters)
    is_method = next(iter(parameters), None) == "self"
    parameters.pop("self", None)
    description, documented = _read_docstring(function, name)
    strangers = sorted(documented.keys() - parameters.keys())
    if strangers:
        hint = nearest(strangers[0], parameters)
        raise ToolDefinitionError(f"tool {name!r}: Args documents {strangers[0]!r}, not a parameter.{hint}")
    hints = _type_hints(function, name)
    fields = {
        key: _field(parameter, hints.get(key, inspect.Parameter.empty), documented.get(key), name)
        for key, parameter in parameters.items()
    }
    adapter, shape = _adapter(name, fields)
    function_schema = {"name": name, "description": description, "parameters": shape}
    return ToolSignature(
        schema={"type": "function", "function": function_schema},
        coerce=partial(_validate, adapter, shape.get("properties", {})),
        is_method=is_method,
    )


def coerce_arguments(
    signature: ToolSignature, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments with the types of the signature, and what was mended for it.

    A list or an object that was written as a string of JSON is read, at any depth where a string does not
    fit; that is the repair ``double_encoded``. What a nested model does not list is refused, not dropped,
    unless the model takes extra fields.

    Raises:
        ValueError: they do not fit; the message names each argument that does not, for the policy.
    """
    schema = signature.schema["function"]["parameters"]
    repairs: tuple[str, ...] = ()
    try:
        values = signature.coerce(arguments)
    except ValueError:
        decoded, repairs = decode_texts(arguments, schema)
        if decoded == arguments:
            raise
        values, arguments = signature.coerce(decoded), decoded
    if "$defs" in schema:
        refuse_strangers(arguments, schema)
    return values, repairs


def _validate(
    adapter: TypeAdapter[dict[str, Any]], known: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        return adapter.validate_python(dict(arguments))
    except ValidationError as error:
        problems = [_explain(problem, known) for problem in error.errors()[:_MOST_PROBLEMS]]
        more = error.error_count() - len(problems)
        raise ValueError("; ".join([*problems, *([f"and {more} more"] if more else [])])) from None


def _explain(problem: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    where = ".".join(map(str, problem["loc"]))
    where = where if len(where) <= _PLACE_CHARS else f"{where[:_PLACE_CHARS]}..."
    if problem["type"] == "extra_forbidden":
        known_names = "; known: " + ", ".join(known) if len(problem["loc"]) == 1 else ""
        return f"there is no argument {where!r}{nearest(where, known) or known_names}"
    if problem["type"] == "missing":
        return f"argument {where!r} is missing"
    return f"argument {where!r}: {problem['msg']}, got {_short(problem.get('input'))}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _type_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ToolDefinitionError(
            f"tool {name!r}: its types cannot be read ({error}); use types that its module defines or imports"
        ) from error


def _field(parameter: inspect.Parameter, hint: Any, text: str | None, tool: str) -> Any:
    where = f"tool {tool!r}: parameter {parameter.name!r}"
    if parameter.kind not in _PASSED_BY_NAME:
        raise ToolDefinitionError(f"{where} cannot be passed by name; name every argument")
    if hint is inspect.Parameter.empty:
        raise ToolDefinitionError(f"{where} has no type; annotate it, so that arguments can be checked")
    text = text or _annotated_text(hint)
    if not text:
        raise ToolDefinitionError(
            f"{where} is not described; add a line '{parameter.name}: ...' under 'Args:' in the docstring"
        )
    if parameter.default is inspect.Parameter.empty:
        return Annotated[hint, Field(description=text)]
    extra = {"default": parameter.default} if _is_json(parameter.default) else None
    return NotRequired[Annotated[hint, Field(description=text, json_schema_extra=cast(Any, extra))]]


def _annotated_text(hint: Any) -> str | None:
    for note in getattr(hint, "__metadata__", ()):
        if isinstance(note, str):
            return note
        if isinstance(note, FieldInfo) and note.description:
            return note.description
    return None


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


class _WithoutTitles(GenerateJsonSchema):
    """Titles repeat the names, and every character of a schema is read by the policy."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def _adapter(name: str, fields: dict[str, Any]) -> tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]:
    make: Any = TypedDict  # made at run time, which type checkers do not follow
    arguments = make(name, fields)
    arguments.__pydantic_config__ = ConfigDict(
        extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False
    )
    try:
        adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(arguments)
        shape = adapter.json_schema(schema_generator=_WithoutTitles)
    except PydanticUserError as error:
        raise ToolDefinitionError(f"tool {name!r}: a parameter's type has no JSON schema: {error}") from error
    for nested in shape.get("$defs", {}).values():
        nested.pop("title", None)
    left_out = ("title", "additionalProperties")
    return adapter, {key: value for key, value in shape.items() if key not in left_out}


def _read_docstring(function: Callable[..., Any], name: str) -> tuple[str, dict[str, str]]:
    """Return the description and what the Google-style ``Args:`` section says of each parameter."""
    lines = (inspect.getdoc(function) or "").splitlines()
    starts = [i for i, line in enumerate(lines) if _SECTION.fullmatch(line)]
    description = "\n".join(lines[: starts[0]] if starts else lines).strip()
    if not description:
        raise ToolDefinitionError(f"tool {name!r} has no docstring; say what it does, the policy reads it")
    start = next((i for i in starts if lines[i].strip() == "Args:"), None)
    if start is None:
        return description, {}
    end = next((i for i in starts if i > start), len(lines))
    return description, _read_entries(lines[start + 1 : end])


def _read_entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, str] = {}
    indent: int | None = None
    current = ""
    for line in filter(str.strip, lines):
        depth = len(line) - len(line.lstrip())
        indent = depth if indent is None else indent
        found = _ENTRY.fullmatch(line.strip()) if depth <= indent else None
        if found:
            current = found[1].lstrip("*")
            entries[current] = found[2].strip()
        elif current:
            entries[current] = f"{entries[current]} {line.strip()}".strip()
    return entries
