"""The recorder: exact prefixes, the forest of turns, what starts a new root."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playground import SpySampler, assistant, counting_script, recorder, seat, user

from hyperrl.agents.base import Steps
from hyperrl.agents.byte_renderer import ByteRenderer
from hyperrl.agents.forest import Forest
from hyperrl.agents.limits import LimitReached, RolloutLimits
from hyperrl.agents.recorder import Recorder, RemoteSeat
from hyperrl.agents.scripted import ScriptedPolicy
from hyperrl.agents.sealing import Gathered, seal_events, seal_turns
from hyperrl.errors import ConfigError, RolloutError, SamplingError, TemplateError
from hyperrl.sampling import Completion, EpisodeKey, Reply, RequestKey, request_seed
from hyperrl.trajectory import StopReason, Trajectory, TruncationReason

TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
]


def sealed(record: Recorder, final: Sequence[int] = ()) -> Trajectory:
    names: dict[str, Any] = {"group_id": (0, 0), "sample_index": 0, "task_id": "t", "env_id": "e"}
    gathered = Gathered(record.forest, Steps())
    columns, events = seal_turns(gathered, final), seal_events(gathered)
    return Trajectory.from_columns(columns, events, run_id="r", **names)


def key(ordinal: int, name: str = "main") -> RequestKey:
    return RequestKey((0, 0), 0, name, ordinal)


def test_two_hundred_turns_extend_one_prompt_exactly() -> None:
    sampler = SpySampler(counting_script)
    record = recorder(sampler)

    async def play() -> None:
        messages: list[Any] = [{"role": "system", "content": "s"}, user("go")]
        for i in range(200):
            reply = await record.policy().respond(messages)
            messages = [*messages, reply.message, user(f"next {i}")]

    asyncio.run(play())
    trajectory = sealed(record)
    assert record.roots == {"first": 1}
    for i in range(200):
        assert trajectory.prompt_ids(i).tolist() == sampler.prompts[key(i)]
        assert trajectory.turns[i].parent == (i - 1 if i else None)
    assert trajectory.prompt_ids(199).tolist() == ByteRenderer().first(rendered(200))


def rendered(turns: int) -> list[dict[str, Any]]:
    """The messages of the conversation above, which the byte renderer also renders as a whole."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, user("go")]
    for i in range(turns - 1):
        messages += [assistant(f"0/0/{i}"), user(f"next {i}")]
    return messages


def test_arrays_of_an_episode_are_views_of_one_read_only_array() -> None:
    record = recorder(SpySampler(counting_script, policy_version=3))

    async def play() -> None:
        reply = await record.policy().respond([user("a")])
        await record.policy().respond([user("a"), reply.message, user("b")])

    asyncio.run(play())
    trajectory = sealed(record, [1, 2])
    turns, final = trajectory.turns, trajectory.final_context_ids
    bases = {id(array.base) for turn in turns for array in (turn.context_ids, turn.action_ids)}
    assert bases == {id(final.base)}
    assert len({id(turn.behavior_logprobs.base) for turn in turns}) == 1  # type: ignore[union-attr]
    assert not final.base.flags.writeable  # type: ignore[union-attr]
    assert [turn.policy_versions.tolist() for turn in turns] == [[3] * len(t.action_ids) for t in turns]
    assert not turns[0].action_ids.flags.writeable


def test_a_branch_continues_the_turn_that_it_names() -> None:
    sampler = SpySampler(counting_script)
    record = recorder(sampler)

    async def play() -> None:
        policy = record.policy()
        first = await policy.respond([user("a")])
        start = [user("a"), first.message]
        second = await policy.respond([*start, user("left")])
        await policy.respond([*start, user("right")])
        await policy.respond([*start, user("left"), second.message, user("deeper")])

    asyncio.run(play())
    trajectory = sealed(record)
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 0, 1]
    assert [trajectory.prompt_ids(i).tolist() for i in range(4)] == [
        sampler.prompts[key(i)] for i in range(4)
    ]
    assert record.roots == {"first": 1}


def test_concurrent_branches_of_one_turn_do_not_mix() -> None:
    sampler = SpySampler(counting_script)
    record = recorder(sampler)

    async def play() -> None:
        policy = record.policy()
        first = await policy.respond([user("a")])
        start = [user("a"), first.message]
        await asyncio.gather(*(policy.respond([*start, user(f"branch {i}")]) for i in range(5)))

    asyncio.run(play())
    trajectory = sealed(record)
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 0, 0, 0, 0]
    for turn in record.forest.turns:
        ordinal = int(turn.text.split("/")[2])
        assert trajectory.prompt_ids(turn.index).tolist() == sampler.prompts[key(ordinal)]


def test_a_request_that_failed_leaves_no_trace_in_the_next() -> None:
    fail = [True]

    def script(prompt: str, request: RequestKey) -> str:
        if request.ordinal == 1 and fail.pop():
            raise SamplingError("no")
        return "yes"

    sampler = SpySampler(script)
    record = recorder(sampler)

    async def play() -> None:
        policy = record.policy()
        first = await policy.respond([user("a")])
        messages = [user("a"), first.message, user("b")]
        with pytest.raises(SamplingError):
            await policy.respond(messages)
        await policy.respond(messages)

    asyncio.run(play())
    trajectory = sealed(record)
    assert [turn.parent for turn in trajectory.turns] == [None, 0]
    assert trajectory.prompt_ids(1).tolist() == sampler.prompts[key(2)]


def respond_twice(second: Any, tools: Any = (), first_tools: Any = (), **values: Any) -> Recorder:
    """Ask [system, user], then ``second(conversation)`` under ``tools``."""
    record = recorder(SpySampler(counting_script), **values)
    start = [{"role": "system", "content": "s"}, user("a")]

    async def play() -> None:
        reply = await record.policy().respond(start, first_tools)
        await record.policy().respond(second([*start, reply.message, user("b")]), tools)

    asyncio.run(play())
    return record


def edit(place: int, **change: str) -> Any:
    return lambda said: [{**m, **change} if i == place else m for i, m in enumerate(said)]


@pytest.mark.parametrize(
    ("second", "tools", "reason"),
    [
        (edit(1, content="A"), (), "rewritten_history"),
        (edit(2, content="other"), (), "rewritten_history"),
        (lambda said: [said[0], user("summary")], (), "rewritten_history"),
        (lambda said: [user("new")], (), "new_conversation"),
        (lambda said: said[:2], (), "resampled"),
        (lambda said: said[:3], (), "rewritten_history"),
        (lambda said: said, TOOLS, "tools_changed"),
        (lambda said: [*said[:3], user("x"), assistant("never sampled"), user("y")], (), "bridge_refused"),
    ],
)
def test_what_does_not_extend_starts_a_root_with_its_reason(second: Any, tools: Any, reason: str) -> None:
    record = respond_twice(second, tools)
    assert record.roots == {"first": 1, reason: 1}
    assert [turn.parent for turn in record.forest.turns] == [None, None]
    sealed(record)


@pytest.mark.parametrize(
    "second",
    [
        tuple,
        lambda said: [dict(m) for m in said],
        edit(0, role="developer"),
        lambda said: [{**said[0], "content": [{"type": "text", "text": "s"}]}, *said[1:]],
        lambda said: [*said, user("c")],
    ],
)
def test_an_echo_in_other_clothes_extends(second: Any) -> None:
    record = respond_twice(second)
    assert record.roots == {"first": 1}
    assert record.forest.turns[1].parent is record.forest.turns[0]


def test_equal_tools_are_the_same_tools() -> None:
    copy = [{"type": "function", "function": dict(TOOLS[0]["function"])}]  # type: ignore[call-overload]
    assert respond_twice(lambda said: said, tools=tuple(copy), first_tools=TOOLS).roots == {"first": 1}


def test_history_changed_in_place_is_noticed() -> None:
    record = recorder(SpySampler(counting_script))

    async def play() -> None:
        messages: list[Any] = [user("a")]
        reply = await record.policy().respond(messages)
        messages[0]["content"] = "changed"
        messages += [reply.message, user("b")]
        await record.policy().respond(messages)

    asyncio.run(play())
    assert record.roots == {"first": 1, "new_conversation": 1}


def test_twins_are_told_apart_by_the_reply_that_was_handed_out() -> None:
    """Two answers to one prompt that read the same, although their tokens may differ."""
    record = recorder(SpySampler(lambda prompt, request: "same"))

    async def play() -> list[int | None]:
        policy = record.policy()
        replies = [await policy.respond([user("a")]) for _ in range(3)]
        followed = []
        for reply in (*replies, None):
            message = reply.message if reply else assistant("same")
            answer = await policy.respond([user("a"), message, user("b")])
            parent = record.forest.turns[answer.turn or 0].parent
            followed.append(parent.index if parent else None)
        return followed

    assert asyncio.run(play()) == [0, 1, 2, 2]


def test_seats_have_conversations_of_their_own() -> None:
    sampler = SpySampler(counting_script)
    record = recorder(sampler, seats={"white": seat(sampler), "black": seat(sampler, temperature=0.5)})

    async def play() -> None:
        white, black = record.policy("white"), record.policy("black")
        one = await white.respond([user("a")])
        two = await black.respond([user("a")])
        await white.respond([user("a"), one.message, user("b")])
        await black.respond([user("a"), two.message, user("b")])

    asyncio.run(play())
    turns = sealed(record).turns
    assert [(turn.policy, turn.parent, turn.temperature) for turn in turns] == [
        ("white", None, 1.0),
        ("black", None, 0.5),
        ("white", 0, 1.0),
        ("black", 1, 0.5),
    ]
    assert record.roots == {"first": 2}
    with pytest.raises(ConfigError, match="Did you mean 'black'"):
        record.policy("blak")


def test_side_requests_are_marked_and_take_no_turn() -> None:
    record = recorder(SpySampler(counting_script), limits=RolloutLimits(max_turns=1))

    async def play() -> None:
        await record.policy(use="side").respond([user("title?")])
        await record.policy().respond([user("a")])
        await record.policy(use="side").respond([user("title?")])

    asyncio.run(play())
    trajectory = sealed(record)
    assert [turn.use for turn in trajectory.turns] == ["side", "train", "side"]
    assert trajectory.main_path == (1,)


def test_requests_draw_from_seeds_of_their_own() -> None:
    sampler = SpySampler(counting_script)
    record = recorder(sampler)

    async def play() -> None:
        for text in "abc":
            await record.policy().respond([user(text)])

    asyncio.run(play())
    assert sampler.seeds == {key(i): request_seed(7, key(i)) for i in range(3)}


def test_the_stop_ids_of_the_renderer_are_taken() -> None:
    sampler = SpySampler(counting_script)
    asyncio.run(recorder(sampler).policy().respond([user("a")]))
    assert sampler.params[key(0)].stop_ids == ByteRenderer.stop_ids


def test_a_cut_action_keeps_its_calls_and_is_bridged_with_its_close() -> None:
    sampler = SpySampler(['<tool_call>{"name": "add", "arguments": {}}</tool_call>', "x"])
    record = recorder(sampler, seats={"main": seat(sampler, max_tokens=30)})

    async def play() -> None:
        reply = await record.policy().respond([user("a")])
        assert reply.stop_reason is StopReason.LENGTH
        assert [call.status for call in reply.tool_calls] == ["unclosed"]
        await record.policy().respond([user("a"), reply.message, user("b")])

    asyncio.run(play())
    prompt = sampler.prompts[key(1)]
    first = sampler.prompts[key(0)]
    assert len(sealed(record).turns[0].action_ids) == 30
    assert prompt[: len(first) + 30] == [*first, *sealed(record).turns[0].action_ids.tolist()]
    assert prompt[len(first) + 30] == ByteRenderer.stop_ids[0]


def test_limits_cut_and_refuse() -> None:
    sampler = SpySampler(counting_script)
    prompt = len(ByteRenderer().first([user("a")]))
    record = recorder(sampler, limits=RolloutLimits(max_context=prompt + 3))
    reply = asyncio.run(record.policy().respond([user("a")]))
    assert len(reply.action_ids) == 3
    with pytest.raises(LimitReached) as caught:
        asyncio.run(record.policy().respond([user("abcde")]))
    assert caught.value.reason is TruncationReason.CONTEXT
    assert record.budget.reached is TruncationReason.CONTEXT

    record = recorder(sampler, limits=RolloutLimits(max_episode_tokens=2 * prompt + 8))
    asyncio.run(record.policy().respond([user("a")]))
    assert len(asyncio.run(record.policy().respond([user("b")])).action_ids) == 2
    with pytest.raises(LimitReached) as caught:
        asyncio.run(record.policy().respond([user("c")]))
    assert caught.value.reason is TruncationReason.MAX_TOKENS


def test_a_context_overflow_of_the_sampler_is_a_limit() -> None:
    record = recorder(SpySampler(counting_script, context=10))
    with pytest.raises(LimitReached) as caught:
        asyncio.run(record.policy().respond([user("far too long")]))
    assert caught.value.reason is TruncationReason.CONTEXT


class Uneven(SpySampler):
    async def generate(self, prompt_ids: Any, params: Any, **names: Any) -> Completion:
        return Completion(
            action_ids=[1, 2], logprobs=[0.0], policy_versions=[0, 0], stop_reason=StopReason.STOP
        )


def test_an_uneven_completion_is_refused() -> None:
    record = recorder(Uneven(counting_script))
    with pytest.raises(SamplingError, match="2 action_ids with 1 logprobs"):
        asyncio.run(record.policy().respond([user("a")]))
    assert not record.forest.turns
    assert not record.forest.logprobs


@pytest.mark.parametrize(
    ("logprobs", "versions", "error"),
    [
        ([-1.0, -2.0], [1, 1.0], TypeError),
        ([-1.0, "x"], [1, 1], TypeError),
        ([-1.0, None], [1, 1], TypeError),
        ([-1.0, -2.0], [1, 2**31], OverflowError),
        ([-1.0, 10**400], [1, 1], OverflowError),
    ],
)
def test_what_is_no_logprob_or_version_is_refused_as_an_array_refuses_it(
    logprobs: list[Any], versions: list[Any], error: type[Exception]
) -> None:
    forest = Forest()
    assert forest.draw(1, [-0.5], [7]) == 0
    with pytest.raises(error) as refused:
        forest.draw(2, logprobs, versions)
    with pytest.raises(error) as said:
        array("f", logprobs), array("i", versions)
    assert str(refused.value) == str(said.value)
    assert forest.draw(2, [-1, -0.25], [True, 2**31 - 1]) == 1
    assert array("f", bytes(forest.logprobs)).tolist() == [-0.5, -1.0, -0.25]
    assert array("i", bytes(forest.policy_versions)).tolist() == [7, 1, 2**31 - 1]


class Refusing(ByteRenderer):
    def bridge(self, action_ids: Any, new_messages: Any) -> list[int]:
        raise TemplateError("cannot")


def test_what_cannot_be_bridged_is_rendered_anew() -> None:
    sampler = SpySampler(counting_script)
    sitting = seat(sampler)
    object.__setattr__(sitting, "renderer", Refusing())
    record = respond_twice(lambda said: said, seats={"main": sitting})
    assert record.roots == {"first": 1, "bridge_refused": 1}


def test_a_single_root_is_held_to() -> None:
    with pytest.raises(RolloutError, match="rewritten_history"):
        respond_twice(edit(1, content="A"), single_root=True)


@pytest.mark.parametrize("single_root", [False, True])
def test_a_reply_is_remembered_as_it_was_given(single_root: bool) -> None:
    record = recorder(SpySampler(counting_script), single_root=single_root)
    replies = []

    async def play() -> None:
        reply = await record.policy().respond([user("a")])
        for _ in range(2):
            replies.append(reply)
            reply = await record.policy().follow_up(reply, [user("b")])
        replies.append(reply)

    asyncio.run(play())
    assert [turn.reply_message for turn in record.forest.turns] == [reply.message for reply in replies]


def test_a_late_answer_is_not_recorded() -> None:
    record = recorder(SpySampler(counting_script))

    async def play() -> None:
        task = asyncio.create_task(record.policy().respond([user("a")]))
        await asyncio.sleep(0)
        record.close()
        with pytest.raises(RolloutError, match="late answer"):
            await task

    asyncio.run(play())
    assert not record.forest.turns


def test_a_remote_policy_is_recorded_without_tokens() -> None:
    record = recorder(None, seats={"main": RemoteSeat(policy=ScriptedPolicy(["one", "two"]))})

    async def play() -> None:
        reply = await record.policy().respond([user("a")])
        await record.policy().respond([user("a"), reply.message, user("b")])

    asyncio.run(play())
    turns = sealed(record).turns
    assert [turn.parent for turn in turns] == [None, 0]
    assert [turn.sampled for turn in turns] == [False, False]
    assert [turn.text for turn in record.forest.turns] == ["one", "two"]


texts = st.text(max_size=12)
moves = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["extend", "rewrite", "fresh", "tools", "again"]), texts),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(first=texts, moves=moves, cut=st.integers(1, 20))
def test_the_record_is_what_the_sampler_was_given(first: str, moves: Any, cut: int) -> None:
    """Whatever a program asks: the tokens of the path are exactly the prompt of each turn."""
    sampler = SpySampler(lambda prompt, request: f"{first}|{request.ordinal % 3}")
    record = recorder(sampler, seats={"main": seat(sampler, max_tokens=cut)})

    async def play() -> None:
        conversations: list[tuple[list[Any], Any]] = []

        async def ask(messages: list[Any], tools: Any) -> None:
            reply = await record.policy().respond(messages, tools)
            conversations.append(([*messages, reply.message], tools))

        await ask([user(first)], ())
        for place, move, text in moves:
            said, tools = conversations[place % len(conversations)]
            if move == "extend":
                await ask([*said, user(text)], tools)
            elif move == "rewrite":
                await ask([*said[:-1], assistant(text), user(text)], tools)
            elif move == "fresh":
                await ask([user(text)], tools)
            elif move == "tools":
                await ask([*said, user(text)], () if tools else TOOLS)
            else:
                await ask([dict(m) for m in said[:-1]], tools)

    asyncio.run(play())
    trajectory = sealed(record)
    assert len(trajectory.turns) == len(moves) + 1
    for i, turn in enumerate(trajectory.turns):
        assert trajectory.prompt_ids(i).tolist() == sampler.prompts[key(i)]
        assert len(turn.action_ids) <= cut
    assert sum(record.roots.values()) == sum(turn.parent is None for turn in trajectory.turns)


def test_following_up_is_the_same_as_asking_with_the_whole_conversation() -> None:
    samplers = [SpySampler(counting_script), SpySampler(counting_script)]
    asking, following = map(recorder, samplers)

    async def play() -> None:
        messages: list[Any] = [{"role": "system", "content": "s"}, user("go")]
        reply = await asking.policy().respond(messages, TOOLS)
        other = await following.policy().respond(messages, TOOLS)
        for i in range(5):
            new = [{"role": "tool", "content": str(i), "tool_call_id": "a"}, user(f"more {i}")]
            messages += [reply.message, *new]
            reply = await asking.policy().respond(messages, TOOLS)
            other = await following.policy().follow_up(other, new)
            assert other == reply

    asyncio.run(play())
    assert samplers[0].prompts == samplers[1].prompts
    assert sealed(following) == sealed(asking)


def test_following_up_an_earlier_reply_is_a_branch_and_asking_goes_on_from_it() -> None:
    record = recorder(SpySampler(counting_script))

    async def play() -> None:
        policy = record.policy()
        first = await policy.respond([user("a")])
        await policy.follow_up(first, [user("left")])
        right = await policy.follow_up(first, [user("right")])
        await policy.respond([user("a"), first.message, user("right"), right.message, user("deeper")])

    asyncio.run(play())
    assert [turn.parent for turn in sealed(record).turns] == [None, 0, 0, 2]
    assert record.roots == {"first": 1}


def test_a_message_that_is_changed_after_a_follow_up_starts_a_new_root() -> None:
    record = recorder(SpySampler(counting_script))

    async def play() -> None:
        policy, told = record.policy(), user("told")
        first = await policy.respond([user("a")])
        second = await policy.follow_up(first, [told])
        told["content"] = "something else"
        await policy.respond([user("a"), first.message, told, second.message, user("b")])

    asyncio.run(play())
    assert record.roots == {"first": 1, "bridge_refused": 1}


def test_only_a_reply_of_the_same_seat_can_be_followed_up() -> None:
    record = recorder(SpySampler(counting_script))

    async def play() -> None:
        policy = record.policy()
        reply = await policy.respond([user("a")])
        with pytest.raises(RolloutError, match="only a reply of the same seat can be followed up"):
            await policy.follow_up(reply._replace(turn=7), [user("b")])

    asyncio.run(play())


def test_a_remote_policy_is_followed_up_with_the_whole_conversation() -> None:
    heard: list[list[str]] = []

    class Remote:
        async def respond(self, messages: Any, tools: Any = ()) -> Reply:
            heard.append([message["content"] for message in messages])
            assert list(tools) == TOOLS
            return Reply(message=assistant(f"reply {len(heard)}"), text=f"reply {len(heard)}")

    record = Recorder(key=EpisodeKey((0, 0), 0), run_seed=0, seats={"main": RemoteSeat(policy=Remote())})

    async def play() -> None:
        reply = await record.policy().respond([user("a")], TOOLS)
        await record.policy().follow_up(reply, [user("b")])

    asyncio.run(play())
    assert heard == [["a"], ["a", "reply 1", "b"]]
