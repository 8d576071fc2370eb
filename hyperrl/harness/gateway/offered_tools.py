"""The tools that a program offers, as the policy is shown them and as they are called on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from hyperrl.sampling import ToolSchema

__all__ = ["OfferedTool", "OfferedTools"]

FREEFORM_PARAMETERS = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as plain text."}},
    "required": ["input"],
}


class OfferedTool(NamedTuple):
    """A tool as the program knows it.

    Attributes:
        kind: ``custom`` takes a text, ``function`` an object.
        name: its name within the namespace.
        namespace: the group of tools that it is in; empty if it is in none.
    """

    kind: Literal["function", "custom"]
    name: str
    namespace: str = ""

    @property
    def shown_name(self) -> str:
        """The name by which the policy knows it."""
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


class OfferedTools:
    """The tools of a request.

    Attributes:
        schemas: what the policy is shown: functions only, each name once.
        hosted: how many were left out because the vendor, not the program, would run them.
    """

    __slots__ = ("_by_name", "hosted", "schemas")

    def __init__(self) -> None:
        self.schemas: list[ToolSchema] = []
        self.hosted = 0
        self._by_name: dict[str, OfferedTool] = {}

    def add(self, tool: OfferedTool, description: str, parameters: Mapping[str, Any] | None) -> None:
        """Offer a tool; the first of a name counts.

        Args:
            tool: the tool as the program knows it.
            description: what it is for.
            parameters: JSON Schema of its arguments; a freeform tool has none and becomes a function with
                one text, ``input``.
        """
        shown = tool.shown_name
        if shown in self._by_name:
            return
        self._by_name[shown] = tool
        if tool.kind == "custom":
            parameters = FREEFORM_PARAMETERS
        function = {"name": shown, "description": description, "parameters": parameters or {"type": "object"}}
        self.schemas.append({"type": "function", "function": function})

    def called(self, shown: str) -> OfferedTool:
        """Return the tool that the policy called; one that was not offered is a function of that name."""
        return self._by_name.get(shown) or OfferedTool("function", shown or "unreadable_call")
