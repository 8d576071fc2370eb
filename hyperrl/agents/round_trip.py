"""Whether an environment's texts survive a chat template and the parser: an episode played through tokens."""

from __future__ import annotations

import functools
import json
import math

from hyperrl.agents.rendering import ChatTemplate, SafeTokenizer, TemplateRenderer
from hyperrl.envs.checker import FailedError, SkippedError
from hyperrl.envs.core import TextEnv
from hyperrl.envs.gold_actions import gold_actions
from hyperrl.envs.messages import Action, Observation, message_text
from hyperrl.envs.tool_calls import parse_tool_calls
from hyperrl.sampling import Message

__all__ = ["check_round_trip", "make_chatml_renderer"]

_TASKS = 3
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


@functools.cache
def make_chatml_renderer() -> TemplateRenderer:
    """Return a renderer with a ChatML template over a tokenizer of 256 bytes; it needs no model."""
    from tokenizers import AddedToken, Tokenizer  # noqa: PLC0415  # of the extra `agents`
    from tokenizers.decoders import ByteLevel as Decoder  # noqa: PLC0415
    from tokenizers.models import BPE  # noqa: PLC0415
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415

    alphabet = sorted(ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = Decoder()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in _CONTROL])
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    safe = SafeTokenizer(json.loads(tokenizer.to_str()), config, source="ChatML over bytes")
    template = ChatTemplate(_TEMPLATE, named_tokens=safe.named_tokens, origin="ChatML over bytes")
    return TemplateRenderer(safe, template)


def check_round_trip(env: TextEnv) -> str:
    """Render prompts with a ChatML template and play rendered gold actions through the parser.

    Args:
        env: the environment; it is reset and played.

    Returns:
        What was seen.

    Raises:
        FailedError: a message is missing from the prompt, an action is parsed to another one, or the gold
            scores otherwise through tokens than as text.
        SkippedError: nobody knows the gold.
    """
    renderer = make_chatml_renderer()
    actions = sum(_play(env, renderer, index) for index in range(min(_TASKS, len(env.taskset))))
    return f"{actions} actions through a ChatML template and the parser"


def _play(env: TextEnv, renderer: TemplateRenderer, index: int) -> int:
    plain = _score(env, [Action(text) for text in _begin(env, index)[1]])
    observation, texts = _begin(env, index)
    ids = renderer.first(observation.messages, env.tools)
    _check_prompt(renderer, ids, observation.messages, [str(t["function"]["name"]) for t in env.tools])
    total, terminated = 0.0, False
    for text in texts:
        if terminated:
            break
        action_ids = renderer.encode_action(text)
        heard, reward, terminated, _, _ = env.step(_parse(renderer, action_ids, text))
        total += reward
        if not terminated and isinstance(heard, Observation):
            bridged = renderer.bridge(action_ids, heard.messages)
            _check_prompt(renderer, bridged, heard.messages, ())
    if not (total == plain or (math.isnan(total) and math.isnan(plain))):
        raise FailedError(f"task {index}: the gold scores {plain:g} as text, but {total:g} through tokens")
    return len(texts)


def _begin(env: TextEnv, index: int) -> tuple[Observation, list[str]]:
    observation, _ = env.reset(seed=index, options={"task": index})
    actions = gold_actions(env)
    if actions is None:
        raise SkippedError("the environment defines no gold()")
    return observation, actions


def _score(env: TextEnv, actions: list[Action]) -> float:
    total = 0.0
    for action in actions:
        _, reward, terminated, _, _ = env.step(action)
        total += reward
        if terminated:
            break
    return total


def _parse(renderer: TemplateRenderer, action_ids: list[int], text: str) -> Action:
    """Return the action as a rollout would pass it on. Raises FailedError where it became another one."""
    parsed = renderer.parse(action_ids, id_prefix="call")
    expected = parse_tool_calls(text, id_prefix="call")
    calls = [(call.name, call.arguments, call.status) for call in parsed.tool_calls]
    wanted = [(call.name, call.arguments, call.status) for call in expected.tool_calls]
    if (parsed.text, parsed.content, calls) != (text, expected.content, wanted):
        raise FailedError(
            f"the gold action {text!r:.80} is parsed to {parsed.text!r:.80}, calls {calls!r:.80}"
        )
    broken = [call for call in expected.tool_calls if call.status != "ok"]
    if broken:
        raise FailedError(f"a call of the gold action {text!r:.80} is {broken[0].status}")
    return Action(parsed.text, token_ids=action_ids, tool_calls=parsed.tool_calls, content=parsed.content)


def _check_prompt(
    renderer: TemplateRenderer, ids: list[int], messages: tuple[Message, ...], names: list[str] | tuple[()]
) -> None:
    text = renderer.decode(ids)
    for wanted in [*map(message_text, messages), *names]:
        if wanted.encode("utf-8", "replace").decode() not in text:
            raise FailedError(f"the prompt lacks {wanted!r:.80} of a message or tool")
