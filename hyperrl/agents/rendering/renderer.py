"""Messages to token ids: the first prompt, and after that only what is new.

A conversation is never rendered twice: the ids of the first prompt and of every action stay as they are,
and behind an action go the ids of what came after it (:mod:`hyperrl.agents.rendering.bridge`). The prefix
is exact by construction, and the cost does not grow with the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hyperrl.agents.rendering.bridge import Bridge, Pattern
from hyperrl.agents.rendering.dialect import Dialect
from hyperrl.agents.rendering.encoder import ESCAPE, SafeTokenizer
from hyperrl.agents.rendering.messages import prepare_messages, prepare_tools
from hyperrl.agents.rendering.model_files import read_chat_template, read_eos_ids, read_tokenizer
from hyperrl.agents.rendering.parser import ParsedAction, parse_action
from hyperrl.agents.rendering.template import ChatTemplate
from hyperrl.envs.messages import visible_text
from hyperrl.errors import SamplingError, TemplateError
from hyperrl.sampling import Message, ToolSchema

__all__ = ["Renderer", "TemplateRenderer", "load_renderer"]


@runtime_checkable
class Renderer(Protocol):
    """Turns messages into token ids and actions back into messages. Safe to share by threads."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end an action; the first is the one that the template writes."""
        ...

    @property
    def pad_id(self) -> int:
        """The id to pad with. It may equal a stop id, so never make a mask from it."""
        ...

    @property
    def vocab_size(self) -> int:
        """One more than the largest id; a model's embedding may have more rows."""
        ...

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """Return the ids of a whole conversation, up to where the policy speaks next.

        Raises:
            SamplingError: a message that cannot be shown to a policy.
            ToolDefinitionError: a tool that cannot be.
            TemplateError: the template refuses the conversation, or would lose part of it.
        """
        ...

    def bridge(self, action_ids: Sequence[int], new_messages: Sequence[Message]) -> list[int]:
        """Return the ids that follow an action: its stop token if it has none, then the new messages.

        Args:
            action_ids: exactly what was sampled, the stop token included.
            new_messages: what came after it, without the action; no assistant message.

        Raises:
            SamplingError: a message that cannot be shown to a policy, or an assistant message.
            TemplateError: messages of these roles cannot be bridged exactly.
        """
        ...

    def parse(self, action_ids: Sequence[int], *, id_prefix: str) -> ParsedAction:
        """Take an action apart; never raises. Call ``n`` gets the id ``<id_prefix>_<n>``."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, control tokens included; bytes that are no UTF-8 show as U+FFFD."""
        ...

    def encode_action(self, text: str) -> list[int]:
        """Return the ids of an action given as text, tool-call markup and a stop token included.

        For gold answers and scripted policies, whose text is trusted; never for what was sampled.
        """
        ...

    def prove(self, pattern: Pattern) -> None:
        """Check now that messages of these roles can follow an action, rather than in mid-episode.

        Raises:
            TemplateError: they cannot; gives the failing example.
        """
        ...


class TemplateRenderer:
    """A :class:`Renderer` over a model's own chat template and tokenizer.

    Args:
        tokenizer: the model's tokenizer.
        template: the model's chat template.
        eos_ids: further ids that end an action, such as those of generation_config.json.

    Attributes:
        tokenizer: the model's tokenizer.

    Raises:
        TemplateError: not even a user message can be bridged.
    """

    def __init__(
        self, tokenizer: SafeTokenizer, template: ChatTemplate, *, eos_ids: Sequence[int] = ()
    ) -> None:
        self.tokenizer = tokenizer
        self._template = template
        self._bridge = Bridge(template, tokenizer, eos_ids=eos_ids)
        self._dialect = Dialect(template)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return self._bridge.stop_ids

    @property
    def pad_id(self) -> int:
        return self.tokenizer.pad_id

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @property
    def refused(self) -> Mapping[Pattern, str]:
        """The patterns of roles that were tried and cannot be bridged, each with the reason."""
        return self._bridge.refused

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        return self.tokenizer.encode_rendered(self._template.render(*self._prepare(messages, tools)))

    def action(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """Return the ids that a policy would have sampled to say the last of these messages.

        They are what the template writes behind the prompt of the others, its stop token included: the
        boundary comes from rendering the conversation with and without the message, never from looking
        for text in it. Each part of the message (content, reasoning, calls) must stand there.

        Args:
            messages: a conversation that ends with an assistant message.
            tools: the tools that it was had with.

        Raises:
            SamplingError: a message that cannot be shown to a policy, or the last is no assistant message.
            ToolDefinitionError: a tool that cannot be shown.
            TemplateError: the template refuses the conversation, writes the message otherwise than it opens
                one, does not end it with a stop token, or leaves a part of it out.
        """
        prepared, schemas = self._prepare(messages, tools)
        if not prepared or prepared[-1]["role"] != "assistant":
            raise SamplingError("the last message must be the assistant's: it is what a policy would say")
        prompt = self._template.render(prepared[:-1], schemas)
        whole = self._template.render(prepared, schemas, add_generation_prompt=False)
        if not whole.startswith(prompt):
            raise TemplateError(
                f"{self._template.origin}: the template opens an answer with {prompt[-40:]!r}, but writes"
                f" this one otherwise: {whole[-80:]!r}"
            )
        ids = self.tokenizer.encode_rendered(whole[len(prompt) :])
        end = next((i for i, token in enumerate(ids) if token in self.stop_ids), None)
        if end is None:
            raise TemplateError(f"{self._template.origin}: no stop token ends the answer {whole[-80:]!r}")
        action_ids = ids[: end + 1]
        self._check_said(prepared[-1], self.decode(action_ids))
        return action_ids

    def _prepare(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        prepared = prepare_messages(messages, self.tokenizer.escape)
        schemas = prepare_tools(tools, self.tokenizer.escape)
        if any(message["role"] == "tool" for message in prepared):
            self.prove(("tool",))  # some templates leave tool messages out without a word
        return self._dialect.write(prepared, schemas)

    def _check_said(self, message: Mapping[str, Any], text: str) -> None:
        """Refuse an action in which a part of its message is missing; white space does not count."""
        calls = [call["function"]["name"] for call in message.get("tool_calls") or ()]
        parts = [visible_text(message["content"]), message.get("reasoning_content", ""), *calls]
        said = "".join(text.split())
        for part in parts:
            if "".join(part.replace(ESCAPE, "").split()) not in said:
                raise TemplateError(
                    f"{self._template.origin}: the template leaves {part[:60]!r} out of an answer"
                )

    def bridge(self, action_ids: Sequence[int], new_messages: Sequence[Message]) -> list[int]:
        prepared = prepare_messages(new_messages, self.tokenizer.escape)
        if any(message["role"] == "assistant" for message in prepared):
            raise SamplingError(
                "an assistant message that was not sampled cannot follow an action; start anew"
            )
        ids = self.tokenizer.encode_rendered(self._bridge.suffix(prepared))
        ended = len(action_ids) > 0 and action_ids[-1] in self.stop_ids
        return ids[1:] if ended else ids

    def parse(self, action_ids: Sequence[int], *, id_prefix: str) -> ParsedAction:
        return parse_action(
            self.tokenizer,
            action_ids,
            id_prefix=id_prefix,
            stop_ids=self.stop_ids,
            reasoning_opened=self._bridge.opens_reasoning,
        )

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def encode_action(self, text: str) -> list[int]:
        return [*self.tokenizer.encode_rendered(text), self.stop_ids[0]]

    def prove(self, pattern: Pattern) -> None:
        self._bridge.prove(pattern)


def load_renderer(
    model_dir: Path | str, *, template_options: Mapping[str, Any] | None = None
) -> TemplateRenderer:
    """Make the renderer of a model from its directory; no torch and no transformers needed.

    Args:
        model_dir: a directory in the Hugging Face layout with tokenizer.json and a chat template.
        template_options: variables that the template knows, such as ``{"enable_thinking": False}``.

    Raises:
        ModelError: the directory or its tokenizer cannot be used.
        TemplateError: it has no chat template, or one that cannot be bridged exactly.
    """
    folder = Path(model_dir)
    spec, config = read_tokenizer(folder)
    source = read_chat_template(folder, config)
    tokenizer = SafeTokenizer(spec, config, source=str(folder))
    template = ChatTemplate(
        source, named_tokens=tokenizer.named_tokens, options=template_options, origin=str(folder)
    )
    return TemplateRenderer(tokenizer, template, eos_ids=read_eos_ids(folder))
