"""A policy behind any OpenAI-compatible endpoint: chat.completions with tools, for evaluation.

Nothing of it is learned from: the tokens are the server's, so its turns have no ids and no logprobs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hyperrl.agents.conversation import assistant_message
from hyperrl.agents.faults import EpisodeError
from hyperrl.envs.endpoint import ChatAnswer, Endpoint
from hyperrl.envs.messages import message_text, visible_text
from hyperrl.envs.tool_calls import ParsedText, parse_arguments, parse_tool_calls
from hyperrl.errors import ConfigError, ContextOverflowError, EndpointError
from hyperrl.sampling import (
    EpisodeKey,
    Message,
    Reply,
    RequestKey,
    SamplingParams,
    ToolCall,
    ToolSchema,
    request_seed,
)
from hyperrl.trajectory import StopReason

__all__ = ["EndpointPolicy"]

_NOT_ALLOWED = frozenset({401, 402, 403, 404})
"""The key, the account or the model's name is wrong: no episode can be blamed."""

_OVERFLOW = re.compile(
    r"context[ _](?:length|window|size)|maximum (?:model|sequence|context) length|prompt is too long"
    r"|max_new_tokens|input token count|too many (?:input )?tokens",
    re.IGNORECASE,
)
_LONGEST = re.compile(r"context (?:length|window|size)\D{0,40}?(\d+)", re.IGNORECASE)
_PROMPT = re.compile(
    r"(\d+) (?:tokens? )?(?:in the messages|in the prompt|in the input|input tokens|prompt tokens)"
    r"|(?:prompt|input) (?:contains|has)(?: at least)? (\d+)",
    re.IGNORECASE,
)


class EndpointPolicy:
    """Asks a model that an endpoint serves. Stateless: the whole conversation is sent each time.

    Tool calls are read from ``message.tool_calls``. Arguments that are no JSON keep a status and are never
    run; where a server has no parser for its model, calls are read out of the text as in our own rollouts.
    Reasoning (``reasoning_content``, ``reasoning`` or a leading ``<think>``) is recorded and, unless
    ``send_reasoning``, not sent back.

    Args:
        endpoint: where the model is served.
        model: the name that the endpoint knows it by.
        params: ``max_tokens``, ``temperature`` and ``top_p`` are sent; ``top_k`` where it is not 0.
        send_reasoning: send the reasoning of earlier turns back as ``reasoning_content``.
        extra: more fields of every request, such as ``{"reasoning_effort": "low"}``.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        params: SamplingParams,
        *,
        send_reasoning: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.model = model
        self.params = params
        self._send_reasoning = send_reasoning
        self._extra = dict(extra or {})
        self._limit_name = "max_tokens"

    async def respond(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = (), *, seed: int | None = None
    ) -> Reply:
        """Answer the conversation; ``seed`` is sent where it is given.

        Raises:
            ConfigError: the endpoint refuses the key or does not know the model.
            ContextOverflowError: the conversation does not fit into the model's context.
            EpisodeError: it failed after all retries; the kind says how: ``endpoint_refused``,
                ``endpoint_timeout``, ``endpoint_rate_limited``, ``endpoint_server_error``,
                ``endpoint_bad_request``, ``endpoint_malformed``, or ``content_filter``.
        """
        wire = [_on_the_wire(message, self._send_reasoning) for message in messages]
        fields = self._fields(seed)
        answer = await self._ask(wire, tools, fields)
        if answer.finish_reason == "content_filter":
            raise EpisodeError(
                "content_filter", f"{self.endpoint.base_url} withheld the answer (content_filter)"
            )
        return _read(answer, messages, tools)

    def for_episode(self, key: EpisodeKey, run_seed: int) -> _SeededPolicy:
        """Return this policy with a seed of its own in every request of an episode."""
        return _SeededPolicy(self, key, run_seed)

    def _fields(self, seed: int | None) -> dict[str, Any]:
        fields: dict[str, Any] = {"temperature": self.params.temperature, **self._extra}
        if self.params.top_p < 1:
            fields["top_p"] = self.params.top_p
        if self.params.top_k:
            fields["top_k"] = self.params.top_k
        if seed is not None:
            fields["seed"] = seed % 2**31  # servers read it as a signed 32-bit number
        return fields

    async def _ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], fields: Mapping[str, Any]
    ) -> ChatAnswer:
        limit = self.params.max_tokens
        for last in (False, False, True):
            name = self._limit_name
            try:
                return await self.endpoint.chat(
                    messages, model=self.model, tools=tools, **fields, **{name: limit}
                )
            except EndpointError as error:
                text = str(error)
                if last or error.status not in (400, 413, 422):
                    raise _as_failure(error) from error
                if name == "max_tokens" and "max_completion_tokens" in text and not _OVERFLOW.search(text):
                    self._limit_name = "max_completion_tokens"
                    continue
                room = _room(text)
                if not 1 <= room < limit:
                    raise _as_failure(error) from error
                limit = room
        raise AssertionError("the last try returns or raises")


class _SeededPolicy:
    """An endpoint's policy in one episode: every request has the seed that its name gives."""

    def __init__(self, policy: EndpointPolicy, key: EpisodeKey, run_seed: int) -> None:
        self._policy = policy
        self._key = key
        self._run_seed = run_seed
        self._ordinal = 0

    async def respond(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> Reply:
        seed = request_seed(self._run_seed, RequestKey(*self._key, "main", self._ordinal))
        self._ordinal += 1
        return await self._policy.respond(messages, tools, seed=seed)


def _as_failure(error: EndpointError) -> Exception:
    """Return what a request that failed for good means for its episode, or for the whole rollout."""
    if error.status in _NOT_ALLOWED:
        return ConfigError(f"the endpoint does not let us use this model: {error}")
    if error.status in (400, 413, 422) and _OVERFLOW.search(str(error)):
        return ContextOverflowError(str(error))
    kind: str = error.kind
    if kind == "status":
        status = error.status or 0
        kind = "rate_limited" if status == 429 else "server_error" if status >= 500 else "bad_request"
    return EpisodeError(f"endpoint_{kind}", str(error))


def _room(text: str) -> int:
    """Return how many tokens an overflow message leaves for the answer; 0 where it does not say."""
    longest, prompt = _LONGEST.search(text), _PROMPT.search(text)
    if not longest or not prompt:
        return 0
    return int(longest[1]) - int(prompt[1] or prompt[2])


def _read(answer: ChatAnswer, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
    message = answer.message
    written = message_text(message) or str(message.get("refusal") or "")
    native = message.get("tool_calls") or ()
    answered = sum(m.get("role") == "assistant" for m in messages)
    prefix = f"call_{answered}"
    parsed = parse_tool_calls(written, id_prefix=prefix)
    if native or not tools:
        calls = _read_calls(native, prefix, taken=_ids(messages))
        parsed = parsed._replace(content=visible_text(written), tool_calls=calls)
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        parsed = parsed._replace(reasoning=reasoning)
    stopped = StopReason.LENGTH if answer.finish_reason == "length" else StopReason.STOP
    return Reply(
        message=assistant_message(parsed),
        text=_as_text(parsed) if native or reasoning else written,
        tool_calls=parsed.tool_calls,
        stop_reason=stopped,
        usage=_usage(answer.usage),
    )


def _read_calls(calls: Any, prefix: str, *, taken: set[str]) -> tuple[ToolCall, ...]:
    """Read the calls of a message; an id that is missing or was used before is replaced."""
    found: list[ToolCall] = []
    for number, call in enumerate(calls if isinstance(calls, list) else []):
        item = call if isinstance(call, Mapping) else {}
        function = item.get("function")
        function = function if isinstance(function, Mapping) else {}
        arguments = function.get("arguments")
        body = parse_arguments(function.get("name"), arguments)
        call_id = item.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in taken:
            call_id = f"{prefix}_{number}"
        taken.add(call_id)
        found.append(
            ToolCall(
                call_id=call_id,
                name=body.name,
                arguments=body.arguments,
                raw=arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
                status=body.status,
                repairs=body.repairs,
            )
        )
    return tuple(found)


def _ids(messages: Sequence[Message]) -> set[str]:
    return {str(call.get("id")) for message in messages for call in message.get("tool_calls") or ()}


def _as_text(parsed: ParsedText) -> str:
    """Return an action that came in parts as one text, in the markup of our own rollouts."""
    reasoning = f"<think>\n{parsed.reasoning}\n</think>\n" if parsed.reasoning else ""
    calls = [_call_text(call) for call in parsed.tool_calls]
    return reasoning + "\n".join([*([parsed.content] if parsed.content else []), *calls])


def _call_text(call: ToolCall) -> str:
    arguments = call.raw if call.arguments is None else json.dumps(call.arguments, ensure_ascii=False)
    return f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {arguments}}}</tool_call>'


def _on_the_wire(message: Message, send_reasoning: bool) -> dict[str, Any]:
    """Return a message as any server takes it.

    Some servers read the arguments of earlier calls and refuse the whole request where those are no JSON
    object; there the text is wrapped into one.
    """
    sent = dict(message)
    if not send_reasoning:
        sent.pop("reasoning_content", None)
    if sent.get("tool_calls"):
        sent["tool_calls"] = [_sendable(call) for call in sent["tool_calls"]]
        sent["content"] = sent.get("content") or None
    return sent


def _sendable(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    try:
        fine = isinstance(json.loads(function["arguments"]), dict)
    except (ValueError, RecursionError):
        fine = False
    if not fine:
        function["arguments"] = json.dumps({"invalid_arguments": function["arguments"]}, ensure_ascii=False)
    return {**call, "function": function}


def _usage(usage: Mapping[str, Any]) -> tuple[int, int] | None:
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    prompt, completion = (count if isinstance(count, int) else 0 for count in counts)
    return (prompt, completion) if usage else None
