"""Arguments that a policy wrote as text where their JSON schema asks for something else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from hyperrl.envs.tool_calls import read_json

__all__ = ["decode_texts", "refuse_strangers"]

_MAX_DEPTH = 64


def decode_texts(
    arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read texts as what they spell, wherever ``schema`` takes no text; everything else stays.

    Args:
        arguments: by name, as the policy wrote them.
        schema: of the object that they make up.

    Returns:
        The arguments, and ``double_encoded`` if one of them was a list or an object as text. A text that
        spells one of the allowed numbers or booleans needs no repair, as no other number does.
    """
    decoder = _Decoder(schema)
    decoded: dict[str, Any] = decoder.decode(dict(arguments), schema, 0)
    return decoded, (("double_encoded",) if decoder.found_encoded else ())


def refuse_strangers(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Refuse what no part of ``schema`` lists, at any depth: a model would drop it without a word.

    Raises:
        ValueError: something is not listed; the message names it, for the policy.
    """
    _Decoder(schema).refuse_strangers(dict(arguments), schema, ())


class _Decoder:
    """A walk along a value and its schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions = root.get("$defs", {})
        self.found_encoded = False

    def decode(self, value: Any, shape: Any, depth: int) -> Any:
        optional = isinstance(shape, Mapping) and {"type": "null"} in shape.get("anyOf", ())
        shape = self._resolve(shape)
        if depth > _MAX_DEPTH:
            return value
        if optional and isinstance(value, str) and value.strip().lower() in ("null", "none"):
            return value if self._takes_text(shape, depth) else None
        if isinstance(value, str) and not self._takes_text(shape, depth):
            value = self._read(value, shape)
        if isinstance(value, dict):
            known, others = shape.get("properties", {}), shape.get("additionalProperties")
            return {key: self.decode(part, known.get(key, others), depth + 1) for key, part in value.items()}
        if isinstance(value, list):
            return [self.decode(item, shape.get("items"), depth + 1) for item in value]
        return value

    def refuse_strangers(self, value: Any, shape: Any, place: tuple[str, ...]) -> None:
        shape = self._resolve(shape)
        if len(place) > _MAX_DEPTH:
            return
        if isinstance(value, list):
            for number, item in enumerate(value):
                self.refuse_strangers(item, shape.get("items"), (*place, str(number)))
        if not isinstance(value, dict) or "properties" not in shape:
            return
        known, closed = shape["properties"], "additionalProperties" not in shape
        for key, part in value.items():
            if closed and place and key not in known:
                where = ".".join((*place, key[:80]))
                raise ValueError(f"there is no argument {where!r}; known: {', '.join(known)}")
            self.refuse_strangers(part, known.get(key), (*place, key))

    def _read(self, text: str, shape: Mapping[str, Any]) -> Any:
        with contextlib.suppress(ValueError, RecursionError):
            if text.lstrip()[:1] in ("[", "{", "("):
                value = read_json(text)[0]
                self.found_encoded = True
                return value
            allowed = shape.get("enum", [shape["const"]] if "const" in shape else [])
            value = json.loads(text.strip().lower())
            return next((one for one in allowed if one == value and type(one) is type(value)), text)
        return text

    def _resolve(self, shape: Any) -> Mapping[str, Any]:
        """Follow a reference into ``$defs``, and an ``anyOf`` of one schema and null."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(shape, Mapping):
                return {}
            reference = shape.get("$ref")
            others = [part for part in shape.get("anyOf", ()) if part != {"type": "null"}]
            if isinstance(reference, str):
                shape = self._definitions.get(reference.removeprefix("#/$defs/"))
            elif len(others) == 1:
                shape = others[0]
            else:
                return shape
        return {}

    def _takes_text(self, shape: Mapping[str, Any], depth: int) -> bool:
        """Whether a text may fit; a schema that says nothing takes everything."""
        if "anyOf" in shape:
            return depth > _MAX_DEPTH or any(
                self._takes_text(self._resolve(part), depth + 1) for part in shape["anyOf"]
            )
        kind = shape.get("type", ())
        if kind in ((), []):
            allowed = shape.get("enum", [shape["const"]] if "const" in shape else [""])
            return any(isinstance(one, str) for one in allowed)
        return "string" in ([kind] if isinstance(kind, str) else kind)
