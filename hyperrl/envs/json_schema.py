"""Arguments held against somebody else's JSON schema: coerced where that is certain, then checked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from hyperrl.errors import MissingExtraError, ToolDefinitionError, nearest

__all__ = ["schema_coercer"]

_MOST_PROBLEMS = 5
_MAX_DEPTH = 64


def schema_coercer(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that gives arguments the types of ``schema``.

    A text becomes the number or boolean that it spells where the schema asks for one, and a number becomes a
    text; everything else must fit as it is. An argument that the schema does not list is refused, unless
    it says what others may be.

    Raises:
        MissingExtraError: ``jsonschema`` is not installed.
        ToolDefinitionError: it is no JSON schema.
    """
    try:
        import jsonschema  # noqa: PLC0415  # comes with the SDK
    except ImportError as error:
        raise MissingExtraError("jsonschema", "mcp") from error
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ToolDefinitionError(f"the arguments' schema is no JSON schema: {error.message}") from error
    validator = kind(schema)

    def coerce(arguments: Mapping[str, Any]) -> dict[str, Any]:
        _refuse_strangers(schema, arguments)
        values: dict[str, Any] = _fit(dict(arguments), schema, schema, 0)
        problems = [_explain(problem) for problem in validator.iter_errors(values)]
        if problems:
            raise ValueError("; ".join(problems[:_MOST_PROBLEMS]))
        return values

    return coerce


def _refuse_strangers(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    known = schema.get("properties", {})
    if not known or "additionalProperties" in schema or "patternProperties" in schema:
        return
    for name in arguments:
        if name not in known:
            hint = nearest(name[:80], known) or f"; known: {', '.join(known)}"
            raise ValueError(f"there is no argument {name[:80]!r}{hint}")


def _fit(value: Any, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    """Return ``value`` with the types of ``schema`` where its text leaves no doubt."""
    schema = _resolve(schema, root)
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return value
    if isinstance(value, dict):
        parts = schema.get("properties", {})
        return {key: _fit(part, parts.get(key), root, depth + 1) for key, part in value.items()}
    if isinstance(value, list):
        return [_fit(item, schema.get("items"), root, depth + 1) for item in value]
    return _fit_scalar(value, _types(schema, root))


def _resolve(schema: Any, root: Mapping[str, Any]) -> Any:
    """Follow a reference into ``$defs``; and an ``anyOf`` of one schema and null, as for optional values."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return schema
        reference = schema.get("$ref")
        others = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            schema = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        elif len(others) == 1 and "properties" in (_resolve(others[0], root) or {}):
            schema = others[0]
        else:
            return schema
    return schema


def _types(schema: Mapping[str, Any], root: Mapping[str, Any]) -> set[str]:
    parts = [schema, *(_resolve(part, root) for part in schema.get("anyOf", ()))]
    found: set[str] = set()
    for part in parts:
        kind = part.get("type", ()) if isinstance(part, Mapping) else ()
        found.update([kind] if isinstance(kind, str) else kind)
    return found


def _fit_scalar(value: Any, types: set[str]) -> Any:
    if isinstance(value, str) and "string" not in types and types & {"integer", "number", "boolean", "null"}:
        return _read_scalar(value, types)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if "string" in types and not types & {"integer", "number"}:
            return json.dumps(value)
        if "integer" in types and isinstance(value, float) and value.is_integer():
            return int(value)
    return value


def _read_scalar(text: str, types: set[str]) -> Any:
    try:
        value = json.loads(text.strip().lower() if "boolean" in types else text)
    except ValueError:
        return text
    if isinstance(value, bool):
        return value if "boolean" in types else text
    if value is None:
        return value if "null" in types else text
    number = isinstance(value, (int, float)) and math.isfinite(value)
    return value if number and types & {"integer", "number"} else text


def _explain(problem: Any) -> str:
    where = ".".join(map(str, problem.absolute_path))
    message = problem.message if len(problem.message) <= 200 else f"{problem.message[:197]}..."
    if problem.validator == "required":
        return f"argument missing: {message}"
    return f"argument {where!r}: {message}" if where else message
