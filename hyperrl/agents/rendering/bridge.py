"""What a template writes after an action, proved not to depend on anything before it.

New messages are rendered behind a stand-in for the action: ``[user, assistant(SENTINEL)] + new``. The text
from the first stop token after the sentinel is what the template puts after an assistant's turn, up to the
header of the next one. That is right for every conversation only if the text does not depend on what came
before, and if encoding splits at the stop token. Both are *proved* on the model's own template and
tokenizer: for the usual patterns of roles when the bridge is made, for others when they first occur.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hyperrl.agents.rendering.encoder import RESERVED, SafeTokenizer
from hyperrl.agents.rendering.template import ChatTemplate
from hyperrl.errors import TemplateError

__all__ = ["PROVED_AT_LOAD", "Bridge", "Pattern"]

Pattern = tuple[str, ...]
"""The roles of the messages between two actions, oldest first."""

Prepared = Sequence[dict[str, Any]]

PROVED_AT_LOAD: tuple[Pattern, ...] = (
    ("user",),
    ("tool",),
    ("tool", "tool"),
    ("tool", "user"),
    ("system",),
)
SENTINEL = f"{RESERVED}reply"
"""Stands for the action; untrusted text cannot contain it."""

ADVICE = "Use a model with a ChatML-like template (Qwen, SmolLM, Llama 3)"


class Bridge:
    """Renders and proves suffixes. Safe to share by threads.

    Args:
        template: the model's chat template.
        tokenizer: the model's tokenizer.
        eos_ids: further ids that end an action, such as those of generation_config.json.

    Attributes:
        stop_ids: the ids that end an action; the first is the one that the template writes.
        refused: patterns that were tried and cannot be bridged, each with the reason.
        opens_reasoning: the template opens a ``<think>`` block for the policy.

    Raises:
        TemplateError: not even a user message can be bridged.
    """

    def __init__(
        self, template: ChatTemplate, tokenizer: SafeTokenizer, *, eos_ids: Sequence[int] = ()
    ) -> None:
        self._template = template
        self._tokenizer = tokenizer
        ends = [i for i in (tokenizer.eos_id, *eos_ids) if i is not None]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys([self._find_close_id(ends), *ends]))
        texts = [text for text, i in tokenizer.control_ids.items() if i in self.stop_ids]
        self._stops = re.compile("|".join(map(re.escape, texts)))
        self._proved: set[Pattern] = set()
        self.refused: dict[Pattern, str] = {}
        first = PROVED_AT_LOAD[0]
        self.opens_reasoning = self._opens_reasoning(_example(first))
        self.prove(first)
        for pattern in PROVED_AT_LOAD[1:]:
            self._try(pattern)

    def suffix(self, new: Prepared) -> str:
        """Return what the template writes after an action for these messages, its stop token first.

        Raises:
            TemplateError: this pattern of roles cannot be bridged exactly.
        """
        self.prove(tuple([message["role"] for message in new]))
        return self._split(new, _HISTORIES[0])[1]

    def prove(self, pattern: Pattern) -> None:
        """Prove that messages of these roles can be bridged exactly; done once each.

        Raises:
            TemplateError: they cannot; gives the failing example.
        """
        if pattern in self._proved:
            return
        if pattern not in self.refused:
            self._try(pattern)
        if pattern in self.refused:
            raise TemplateError(self.refused[pattern])

    def _try(self, pattern: Pattern) -> None:
        try:
            self._prove(pattern)
            self._proved.add(pattern)
        except TemplateError as error:
            roles = ", ".join(pattern)
            reason = str(error).removeprefix(f"{self._template.origin}: ")
            self.refused[pattern] = (
                f"{self._template.origin}: [{roles}] after an assistant message cannot be bridged exactly:"
                f" {reason}. {ADVICE}, or an environment that does not need this"
            )

    def _prove(self, pattern: Pattern) -> None:
        new = _example(pattern)
        expected = ""
        for index, (history, tools) in enumerate(self._accepted_histories(pattern)):
            head, suffix = self._split(new, (history, tools), name=f"probe_{index}")
            expected = expected or suffix
            if suffix != expected:
                roles = ", ".join(message["role"] for message in history)
                raise TemplateError(
                    f"what follows depends on the history: {expected!r} at first,"
                    f" but {suffix!r} after [{roles}]"
                )
            self._check_encoding(head, suffix)
        for message in new:
            if message["content"] not in expected:
                raise TemplateError(f"the template leaves {message['content']!r} out of {expected!r}")
        if self._opens_reasoning(new) != self.opens_reasoning:
            raise TemplateError("the template opens a <think> block after some messages only")

    def _opens_reasoning(self, new: Prepared) -> bool:
        return self._render(new, _HISTORIES[0], "tool")[1].rstrip().endswith("<think>")

    def _check_encoding(self, head: str, suffix: str) -> None:
        encode = self._tokenizer.encode_rendered
        tail = encode(suffix)
        if tail[0] not in self.stop_ids or encode(head + suffix) != encode(head) + tail:
            raise TemplateError(f"encoding does not split before {suffix[:60]!r}")

    def _accepted_histories(self, pattern: Pattern) -> list[tuple[Prepared, Prepared]]:
        """Return the histories that the template accepts by themselves, the plain one first.

        Some number the tool results, so a pattern with one is tried after an earlier one.
        """
        accepted, reason = [], ""
        for history, tools in _HISTORIES:
            try:
                self._template.render(history, tools)
            except TemplateError as error:
                reason = str(error).removeprefix(f"{self._template.origin}: ")
                continue
            accepted.append((history, tools))
        seen = {message["role"] for history, _ in accepted for message in history}
        if len(accepted) < 2 or ("tool" in pattern and "tool" not in seen):
            raise TemplateError(f"the template accepts too few histories to compare: {reason}")
        return accepted

    def _split(
        self, new: Prepared, history: tuple[Prepared, Prepared], name: str = "tool"
    ) -> tuple[str, str]:
        """Return the text before the stop token of the stand-in, and the text from it on."""
        before, after, calls = self._render(new, history, name)
        stop = self._stops.search(after)
        if stop is None or (stop.start() > 0 and not calls):
            raise TemplateError(f"no stop token follows the assistant's text, but {after[:60]!r}")
        return before + after[: stop.start()], after[stop.start() :]

    def _render(self, new: Prepared, history: tuple[Prepared, Prepared], name: str) -> tuple[str, str, int]:
        """Return the text up to the sentinel's end, the text after it, and how many calls stand there.

        Some templates take one call a message, and some none: then fewer than were answered stand there.
        """
        messages, tools = history
        answered = sum(message["role"] == "tool" for message in new)
        failure = TemplateError("it leaves the text of messages out")
        for calls in dict.fromkeys((answered, min(answered, 1), 0)):
            try:
                text = self._template.render([*messages, _stand_in(new, calls, name), *new], tools)
            except TemplateError as error:
                failure = error
                continue
            end = text.rfind(SENTINEL) + len(SENTINEL)
            if end >= len(SENTINEL):
                return text[:end], text[end:], calls
        raise failure

    def _find_close_id(self, ends: Sequence[int]) -> int:
        """Return the id of the control token with which the template ends an assistant message.

        It must be declared to end a sequence, or end the last message too: some families end an inner
        part of a message so (GPT-OSS), and a policy that stopped there would never answer.
        """
        origin = self._template.origin
        try:
            after = self._render(_example(("user",)), _HISTORIES[0], "tool")[1]
        except TemplateError as error:
            reason = str(error).removeprefix(f"{origin}: ")
            raise TemplateError(
                f"{origin}: the chat template cannot be bridged: {reason}. {ADVICE}"
            ) from error
        problem = "must end in a control token of the tokenizer"
        control_ids = self._tokenizer.control_ids
        close = max([text for text in control_ids if after.startswith(text)], key=len, default=None)
        if close is not None:
            last = self._template.render([_USER, _stand_in((), 0, "")], add_generation_prompt=False)
            if control_ids[close] in ends or last.partition(SENTINEL)[2].startswith(close):
                return control_ids[close]
            problem = f"must end in the same token where it is the last, or {close} must be an 'eos_token_id'"
        raise TemplateError(
            f"{origin}: the chat template cannot be bridged: an assistant message {problem},"
            f" but goes on with {after[:60]!r}. {ADVICE}"
        )


def _stand_in(new: Prepared, calls: int, name: str) -> dict[str, Any]:
    """Return an assistant message that made the calls which ``new`` answers."""
    message: dict[str, Any] = {"role": "assistant", "content": SENTINEL}
    answers = [answer for answer in new if answer["role"] == "tool"][:calls]
    if answers:
        message["tool_calls"] = [
            _call(answer.get("name", name), answer.get("tool_call_id", f"call{i:05}"), SENTINEL)
            for i, answer in enumerate(answers)
        ]
    return message


def _example(pattern: Pattern) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for index, role in enumerate(pattern):
        message = {"role": role, "content": f"Example {index} of a {role} message."}
        if role == "tool":
            message["tool_call_id"] = f"call{index:05}"
        messages.append(message)
    return messages


def _call(name: str, call_id: str, argument: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": {"x": argument}}}


_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "string", "description": "The word."}},
            "required": ["x"],
        },
    },
}
_USER = {"role": "user", "content": "What is the first question?"}
_SYSTEM = {"role": "system", "content": "Be brief."}
_ANSWER = {"role": "assistant", "content": "This is an answer."}
_THOUGHT = {"role": "assistant", "content": "So it is.", "reasoning_content": "Let me think."}
_ASKS = {"role": "assistant", "content": "", "tool_calls": [_call("look_up", "call00009", "word")]}
_TELLS = {"role": "tool", "content": "It means something.", "tool_call_id": "call00009", "name": "look_up"}

_HISTORIES: tuple[tuple[Prepared, Prepared], ...] = (
    ([_USER], ()),
    ([_USER, _ANSWER, _USER], ()),
    ([_SYSTEM, _USER, _THOUGHT, _USER, _ANSWER, _USER], ()),
    ([_SYSTEM, _USER], (_TOOL,)),
    ([_USER, _ASKS, _TELLS], (_TOOL,)),
    ([_USER, _ASKS, _TELLS, _THOUGHT, _USER], (_TOOL,)),
)
