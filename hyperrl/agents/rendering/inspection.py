"""What a model's chat template does to a conversation: a report for people who choose a model.

Three things are often mixed up. A template is *prefix-preserving* if a conversation rendered whole begins
with what it rendered when it was shorter; many are not, since they drop the reasoning of earlier turns. It
may still *rewrite* what the policy really sampled, white space for example. Neither matters to hyperrl,
which never renders the history again: it *bridges*, and needs only that the text of new messages does not
depend on the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperrl.agents.rendering.bridge import PROVED_AT_LOAD, Bridge, Pattern
from hyperrl.agents.rendering.dialect import Dialect
from hyperrl.agents.rendering.encoder import SafeTokenizer
from hyperrl.agents.rendering.model_files import read_chat_template, read_eos_ids, read_tokenizer
from hyperrl.agents.rendering.template import ChatTemplate
from hyperrl.errors import TemplateError

__all__ = ["Difference", "TemplateReport", "inspect_template"]

Messages = Sequence[dict[str, Any]]

_SHOWN = 60
_CONTEXT = 10
_BY_FIELD = ", in reasoning_content"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A conversation whose beginning is written otherwise later.

    Attributes:
        conversation: what is said, in words.
        before: what stood there, from where it differs.
        after: what stands there when the conversation is rendered whole.
    """

    conversation: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateReport:
    """What a chat template does.

    Attributes:
        origin: the model directory.
        bridged: patterns of roles after an action that are proved to be exact.
        refused: patterns that are not, with the failing example.
        stop_tokens: tokens that end an action, by id; the first is the one that the template writes.
        generation_suffix: the text from the end of the last message to where the policy speaks.
        opens_reasoning: that text ends in an open ``<think>``.
        prefix_breaks: what the template rendered before it renders otherwise once the conversation goes on.
        rewrites: what was prompted and sampled it renders otherwise as history.
        strips: what the template leaves out or changes, in words.
        adds: what it writes that nobody said, in words.
        tools: ``template`` where it shows tools itself, ``hyperrl`` where we write them into the system
            message.
        calls_readable: calls as the model will write them are such that our parser reads them.
        refuses: tool results, system messages and calls that the template refuses, each with its reason.
    """

    origin: str
    bridged: tuple[Pattern, ...]
    refused: Mapping[Pattern, str]
    stop_tokens: Mapping[int, str]
    generation_suffix: str
    opens_reasoning: bool
    prefix_breaks: tuple[Difference, ...]
    rewrites: tuple[Difference, ...]
    strips: tuple[str, ...]
    adds: tuple[str, ...]
    tools: str
    calls_readable: bool
    refuses: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether a policy with this template can be trained: user messages can follow an action."""
        return ("user",) in self.bridged

    @property
    def usable_with_tools(self) -> bool:
        """Whether it can be trained with tools."""
        return self.usable and ("tool",) in self.bridged and self.calls_readable

    @property
    def prefix_preserving(self) -> bool:
        """Whether every conversation that was tried keeps its beginning."""
        return not self.prefix_breaks


def inspect_template(
    model_dir: Path | str, *, template_options: Mapping[str, Any] | None = None
) -> TemplateReport:
    """Try a model's chat template and report what it does; a template that is refused is reported too.

    Args:
        model_dir: a directory in the Hugging Face layout with tokenizer.json and a chat template.
        template_options: variables that the template knows, such as ``{"enable_thinking": False}``.

    Raises:
        ModelError: the directory or its tokenizer cannot be used.
        TemplateError: it has no chat template, or one that is not valid or renders no user message.
    """
    folder = Path(model_dir)
    spec, config = read_tokenizer(folder)
    source = read_chat_template(folder, config)
    tokenizer = SafeTokenizer(spec, config, source=str(folder))
    template = ChatTemplate(
        source, named_tokens=tokenizer.named_tokens, options=template_options, origin=str(folder)
    )
    template.render([_USER])
    bridged, refused, stop_ids = _prove(template, tokenizer, read_eos_ids(folder))
    dialect, suffix = Dialect(template), _generation_suffix(template)
    return TemplateReport(
        origin=str(folder),
        bridged=bridged,
        refused=refused,
        stop_tokens={i: tokenizer.decode([i]) for i in stop_ids},
        generation_suffix=suffix,
        opens_reasoning=suffix.rstrip().endswith("<think>"),
        prefix_breaks=tuple(_prefix_breaks(template)),
        rewrites=tuple(_rewrites(template)),
        strips=tuple(_strips(template)),
        adds=tuple(_adds(template)),
        tools="template" if dialect.writes_tools else "hyperrl",
        calls_readable=dialect.readable,
        refuses=tuple(_refused_whole(template)),
    )


def _prove(
    template: ChatTemplate, tokenizer: SafeTokenizer, eos_ids: Sequence[int]
) -> tuple[tuple[Pattern, ...], Mapping[Pattern, str], tuple[int, ...]]:
    try:
        bridge = Bridge(template, tokenizer, eos_ids=eos_ids)
    except TemplateError as error:
        ends = [i for i in (tokenizer.eos_id, *eos_ids) if i is not None]
        return (), {("user",): _without_origin(template, error)}, tuple(dict.fromkeys(ends))
    refused = {p: reason.removeprefix(f"{template.origin}: ") for p, reason in bridge.refused.items()}
    return tuple(p for p in PROVED_AT_LOAD if p not in refused), refused, bridge.stop_ids


def _generation_suffix(template: ChatTemplate) -> str:
    """Return what is written after the last message's text and its close, where the policy speaks next."""
    closed = template.render([_USER], add_generation_prompt=False)
    opened = template.render([_USER])
    return opened.removeprefix(closed) if opened.startswith(closed) else opened.partition(_USER["content"])[2]


def _prefix_breaks(template: ChatTemplate) -> list[Difference]:
    """Compare a conversation up to an action with the same conversation after the next messages."""
    breaks = []
    for name, action, new in _CONTINUATIONS:
        before = _try(template, [_USER, action], add_generation_prompt=False)
        after = _try(template, [_USER, action, *new])
        breaks += _differences(f"{name}, {new[0]['role']}", before, after)
    return breaks


def _rewrites(template: ChatTemplate) -> list[Difference]:
    """Compare what was prompted and sampled with how the template writes it as history."""
    found = []
    for name, text in _SAMPLED:
        prompt = _try(template, [_USER])
        action = {"role": "assistant", "content": text}
        before = None if prompt is None else prompt + text
        found += _differences(name, before, _try(template, [_USER, action, _AGAIN]))
    return found


def _differences(conversation: str, before: str | None, after: str | None) -> list[Difference]:
    if before is None or after is None or after.startswith(before):
        return []
    at = next(
        (i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), len(after)
    )
    shown = slice(max(0, at - _CONTEXT), at + _SHOWN)
    return [Difference(conversation=conversation, before=before[shown], after=after[shown])]


def _strips(template: ChatTemplate) -> list[str]:
    probes = [
        (f"reasoning of earlier turns{_BY_FIELD}", [_USER, _THOUGHT, _AGAIN], _REASONING),
        ("reasoning of earlier turns, in the content", [_USER, _THOUGHT_INSIDE, _AGAIN], _REASONING),
        (f"reasoning of the last turn{_BY_FIELD}", [_USER, _THOUGHT], _REASONING),
        (
            f"reasoning before a tool call of the same task{_BY_FIELD}",
            [_USER, _THOUGHT_CALL, _RESULT],
            _REASONING,
        ),
        ("white space around a user's text", [{"role": "user", "content": "  spaced  \n"}], "  spaced  \n"),
        (
            "white space around an earlier answer",
            [_USER, {"role": "assistant", "content": "  spaced  \n"}, _AGAIN],
            "  spaced  \n",
        ),
        ("text beside a tool call", [_USER, {**_CALL, "content": "Words beside."}, _RESULT], "Words beside."),
        ("system messages", [{"role": "system", "content": "An instruction."}, _USER], "An instruction."),
        ("tool results", [_USER, _CALL, _RESULT], "A result."),
    ]
    found = []
    if "reasoning_content" not in template.source:
        probes = [probe for probe in probes if not probe[0].endswith(_BY_FIELD)]
        found.append(f"all reasoning{_BY_FIELD}: unknown to it, so hyperrl writes reasoning into the content")
    for name, messages, wanted in probes:
        last = messages[-1]["role"] == "assistant"
        text = _try(template, messages, add_generation_prompt=not last)
        if text is not None and wanted not in text:
            found.append(name)
    return found


def _adds(template: ChatTemplate) -> list[str]:
    head = template.render([_USER], add_generation_prompt=False).partition(_USER["content"])[0]
    found = []
    if "system" in head or len(head) > _SHOWN:
        found.append(f"a system message of its own: {head[:200]!r}")
    suffix = _generation_suffix(template)
    if "</think>" in suffix:
        found.append("an empty <think> block before the answer: reasoning is switched off")
    return found


def _refused_whole(template: ChatTemplate) -> list[str]:
    conversations = {
        "a system message": [{"role": "system", "content": "An instruction."}, _USER],
        "a tool call and its result": [_USER, _CALL, _RESULT],
        "two tool calls in one message": [
            _USER,
            _TWO_CALLS,
            _RESULT,
            {**_RESULT, "tool_call_id": "call00001"},
        ],
        "a system message in the middle": [_USER, _ANSWER, {"role": "system", "content": "Go on."}, _USER],
    }
    found = []
    for name, messages in conversations.items():
        try:
            template.render(messages)
        except TemplateError as error:
            found.append(f"{name}: {_without_origin(template, error).rpartition('TemplateError: ')[2]}")
    return found


def _try(template: ChatTemplate, messages: Messages, *, add_generation_prompt: bool = True) -> str | None:
    try:
        return template.render(messages, add_generation_prompt=add_generation_prompt)
    except TemplateError:
        return None


def _without_origin(template: ChatTemplate, error: TemplateError) -> str:
    return str(error).removeprefix(f"{template.origin}: ")


_REASONING = "A thought of mine."
_USER = {"role": "user", "content": "What is the question?"}
_AGAIN = {"role": "user", "content": "And the next one?"}
_ANSWER = {"role": "assistant", "content": "An answer."}
_THOUGHT = {**_ANSWER, "reasoning_content": _REASONING}
_THOUGHT_INSIDE = {"role": "assistant", "content": f"<think>\n{_REASONING}\n</think>\n\nAn answer."}


def _call(call_id: str) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": {"word": "probe"}}
    return {"id": call_id, "type": "function", "function": function}


_CALL: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [_call("call00000")]}
_TWO_CALLS = {**_CALL, "tool_calls": [_call("call00000"), _call("call00001")]}
_THOUGHT_CALL = {**_CALL, "reasoning_content": _REASONING}
_RESULT = {"role": "tool", "content": "A result.", "tool_call_id": "call00000", "name": "look_up"}
_CONTINUATIONS: tuple[tuple[str, dict[str, Any], list[dict[str, Any]]], ...] = (
    ("user, answer", _ANSWER, [_AGAIN]),
    ("user, answer with reasoning", _THOUGHT, [_AGAIN]),
    ("user, answer with reasoning in the content", _THOUGHT_INSIDE, [_AGAIN]),
    ("user, tool call", _CALL, [_RESULT]),
    ("user, tool call after reasoning", _THOUGHT_CALL, [_RESULT]),
)
_SAMPLED: tuple[tuple[str, str], ...] = (
    ("a plain answer", "An answer."),
    ("an answer with reasoning", _THOUGHT_INSIDE["content"]),
    ("an answer with white space around it", " An answer.\n"),
)
