"""A scripted player of Calculate: lets the calculator work, or computes with numbers of two digits."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np

from hyperrl.sampling import Message
from hyperrl_tasks.arithmetic import read_expression

__all__ = ["baseline"]

_LONGER = re.compile(r"(\d\d)(\d+)")


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:  # noqa: ARG001  # it draws nothing
    """Call the calculator if there is one and repeat what it says.

    Without one, numbers are rounded down to their first two digits before they are computed with.
    """
    text = str(messages[-1]["content"])
    if messages[-1]["role"] == "tool":
        return text
    expression = text.removeprefix("Compute: ")
    if messages[0]["role"] != "system":
        call = {"name": "calculator", "arguments": {"expression": expression}}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    rounded = _LONGER.sub(lambda found: found[1] + "0" * len(found[2]), expression)
    return str(read_expression(rounded).value)
