"""What becomes of a program's requests: which turn they continue, what they are for, what is sampled."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette")

from playground import SpySampler, seat
from served_sessions import Served

from hyperrl.agents.limits import RolloutLimits
from hyperrl.harness.gateway.sessions import GatewaySettings

CALL = '<tool_call>{"name": "add", "arguments": {"b": 3,  "a": 2}}</tool_call>'
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
FUNCTION = {"name": "add", "description": "Add.", "parameters": PARAMETERS}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
TOOLS = [{"type": "function", "strict": False, **FUNCTION}]


def seats(script: Any, *, max_tokens: int = 512, **more: Any) -> dict[str, Any]:
    return {"main": seat(SpySampler(script), max_tokens=max_tokens), **more}


def serve(script: Any, **values: Any) -> Served:
    return Served(script, seats=seats(script), **values)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def chat(messages: list[Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": messages, "tools": CHAT_TOOLS, **fields}


def message(role: str, text: str, kind: str = "input_text") -> dict[str, Any]:
    """An item as Codex writes it."""
    content = [{"type": kind, "text": text}]
    return {"type": "message", "id": "msg_00000000-0000", "role": role, "content": content}


def codex(
    items: list[Any], *, thread: str = "t1", kind: str = "turn", **fields: Any
) -> tuple[Any, dict[str, str]]:
    """A request as Codex writes it, and the headers that it sends with it."""
    stated = json.dumps({"thread_id": thread, "request_kind": kind, "thread_source": "user"})
    body = {
        "model": "stub",
        "stream": False,
        "input": items,
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": thread,
        "client_metadata": {"thread_id": thread, "x-codex-turn-metadata": stated},
        **fields,
    }
    return body, {"session_id": "s1", "thread_id": thread, "x_codex_turn_metadata": stated}


def lossy(message: dict[str, Any], losses: set[str]) -> dict[str, Any]:
    """An assistant message as some program echoes it."""
    echoed = copy.deepcopy(message)
    if "reasoning" in losses:
        echoed.pop("reasoning_content", None)
    if "null" in losses:
        echoed["content"] = echoed["content"] or None
    if "parts" in losses and echoed["content"]:
        part = {"type": "text", "text": echoed["content"], "cache_control": {"type": "ephemeral"}}
        echoed["content"] = [part]
    if "trim" in losses and isinstance(echoed["content"], str):
        echoed["content"] = echoed["content"].strip()
    for call in echoed.get("tool_calls") or ():
        if "arguments" in losses:
            call["function"]["arguments"] = "{}"
        if "compact" in losses:
            call["function"]["arguments"] = call["function"]["arguments"].replace(" ", "")
    echoed.update({"refusal": None, "annotations": []} if "extra" in losses else {})
    return echoed


LOSSES = ["reasoning", "null", "parts", "trim", "arguments", "compact", "extra"]


@settings(max_examples=40, deadline=None)
@given(losses=st.lists(st.sets(st.sampled_from(LOSSES)), min_size=4, max_size=4))
def test_no_echo_of_an_answer_breaks_the_path(losses: list[set[str]]) -> None:
    script = [
        f"<think>\nhm\n</think>\n\n  Look. {CALL}\n{CALL}",
        '<tool_call>{"name": "add", "arguments": {bad json}</tool_call>',
        "<think>\nonly text now\n</think>\n\n  So it is.  ",
        "done",
    ]

    async def main() -> Served:
        served = serve(script)
        history = [{"role": "developer", "content": "be brief"}, user("go"), user("a note")]
        for turn in range(4):
            answer = await served.ask("chat/completions", chat(history))
            said = answer["choices"][0]["message"]
            history = [*history, lossy(said, losses[turn])]
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": "5"}
                for call in said.get("tool_calls") or ()
            ]
            history += results or [user("go on")]
        return served

    served = asyncio.run(main())
    assert served.paths == [None, 0, 1, 2]
    forest = served.recorder.forest
    conversation = forest.turns[-1].conversation
    ids = conversation.ids
    for turn in forest.turns:
        assert turn.conversation is conversation
        assert ids[turn.action_start : turn.ids_end] == turn.action_ids
    assert served.recorder.roots == {"first": 1}


def test_what_was_never_sampled_is_context_only() -> None:
    async def main() -> Served:
        served = serve(["one", "two"])
        invented = {"role": "assistant", "content": "Got it. Thanks for the context!"}
        history = [user("context"), invented, user("task")]
        answer = await served.ask("chat/completions", chat(history))
        history += [answer["choices"][0]["message"], user("more")]
        await served.ask("chat/completions", chat(history))
        return served

    served = asyncio.run(main())
    assert served.paths == [None, 0]
    assert [turn.action_ids[:-1] for turn in served.recorder.forest.turns] == [tuple(b"one"), tuple(b"two")]


def test_codex_compaction_and_what_follows_it() -> None:
    async def main() -> Served:
        served = serve([CALL, "a summary", f"{CALL}", "done"])
        start = [
            message("developer", "You code."),
            message("developer", "<permissions>"),
            message("user", "fix it"),
        ]
        body, headers = codex(start)
        first = (await served.ask("responses", body, **headers))["output"]
        output = {
            "type": "function_call_output",
            "id": "fco_1",
            "call_id": first[0]["call_id"],
            "output": "5",
        }
        asked = message("user", "You are performing a CONTEXT CHECKPOINT COMPACTION. Summarise.")
        body, headers = codex([*start, *first, output, asked], kind="compaction", tools=[])
        summary = (await served.ask("responses", body, **headers))["output"][0]["content"][0]["text"]
        again = [*start, message("user", f"Another model has done some work: {summary}")]
        body, headers = codex(again)
        second = (await served.ask("responses", body, **headers))["output"]
        output = {
            "type": "function_call_output",
            "id": "fco_2",
            "call_id": second[0]["call_id"],
            "output": "5",
        }
        body, headers = codex([*again, *second, output])
        await served.ask("responses", body, **headers)
        return served

    served = asyncio.run(main())
    assert served.uses == ["train", "side", "train", "train"]
    assert served.paths == [None, None, None, 2]
    assert served.recorder.roots == {"first": 1, "tools_changed": 1, "rewritten_history": 1}
    assert served.session.counts["compaction_requests"] == 1


def test_an_answer_that_comes_back_under_a_new_root_is_context_there() -> None:
    async def main() -> Served:
        served = serve([CALL, "summary", "end"])
        history = [{"role": "system", "content": "s"}, user("task")]
        said = (await served.ask("chat/completions", chat(history)))["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "5"}
        ask = user("You are now acting as a compaction engine. Write the summary.")
        await served.ask("chat/completions", chat([*history, said, result, ask]))
        kept = [history[0], user("<compacted-summary>x</compacted-summary>"), said, result]
        await served.ask("chat/completions", chat(kept))
        return served

    served = asyncio.run(main())
    assert served.uses == ["train", "side", "train"]
    assert served.paths == [None, 0, None]
    # the old call stands in the new prompt as it was recorded, and only once among what is learned from
    learned = [t for t in served.recorder.forest.turns if t.use == "train"]
    assert [bytes(t.action_ids[:-1]) for t in learned] == [CALL.encode(), b"end"]


def test_sub_agents_and_titles_are_side_requests() -> None:
    title = [{"role": "system", "content": "Create a concise title for this session."}, user("What is 6*7?")]

    async def main() -> Served:
        served = serve(lambda prompt, key: "fine")
        await served.ask("chat/completions", {"messages": title})
        await served.ask("chat/completions", chat([user("task")]))
        body, headers = codex([message("user", "child task")], thread="t2")
        await served.ask("responses", body, **headers, x_openai_subagent="collab_spawn")
        body = {"max_tokens": 64, "messages": [user("main")]}
        await served.ask("messages", body, x_deepseek_harness_session_id="a")
        await served.ask("messages", {**body, "messages": [user("x")]}, x_deepseek_harness_session_id="b")
        body["messages"] = [user("summarise")]
        await served.ask("messages", body, x_deepseek_harness_session_id="a", x_deepseek_harness_compact="1")
        return served

    served = asyncio.run(main())
    assert served.uses == ["side", "train", "side", "train", "side", "side"]
    counts = served.session.counts
    assert (counts["title_requests"], counts["subagent_requests"], counts["compaction_requests"]) == (1, 2, 1)


def test_side_requests_can_be_learned_from() -> None:
    async def main() -> Served:
        served = serve(["fine"], settings=GatewaySettings(learn_from=frozenset({"subagent"})))
        body, headers = codex([message("user", "child task")])
        await served.ask("responses", body, **headers, x_openai_subagent="collab_spawn")
        return served

    assert asyncio.run(main()).uses == ["train"]


def test_concurrent_children_grow_their_own_branches() -> None:
    async def main() -> Served:
        served = serve(lambda prompt, key: f"answer {key.ordinal}")
        root = [user("root")]
        said = (await served.ask("chat/completions", chat(root)))["choices"][0]["message"]
        branches = [[*root, said, user(f"branch {i}")] for i in range(4)]
        answers = await asyncio.gather(*[served.ask("chat/completions", chat(b)) for b in branches])
        branches = [
            [*branch, answer["choices"][0]["message"], user("next")]
            for branch, answer in zip(branches, answers, strict=True)
        ]
        await asyncio.gather(*[served.ask("chat/completions", chat(b)) for b in branches])
        return served

    served = asyncio.run(main())
    assert served.paths[:5] == [None, 0, 0, 0, 0]
    assert sorted(served.paths[5:]) == [1, 2, 3, 4]
    for turn in served.recorder.forest.turns:
        parent = turn.parent
        if parent is not None:
            before = parent.conversation.ids[: parent.ids_end]
            assert turn.conversation.ids[: parent.ids_end] == before


def test_freeform_and_namespaced_tools_go_there_and_back() -> None:
    patch = "*** Begin Patch\n+x\n*** End Patch\n"
    script = [
        f'<tool_call>{{"name": "apply_patch", "arguments": {json.dumps({"input": patch})}}}</tool_call>'
        '<tool_call>{"name": "agents__spawn", "arguments": {"task": "t"}}</tool_call>',
        "done",
    ]
    tools = [
        {"type": "custom", "name": "apply_patch", "description": "Edit.", "format": {"type": "grammar"}},
        {"type": "namespace", "name": "agents", "tools": [{**TOOLS[0], "name": "spawn"}]},
        {"type": "web_search", "external_web_access": False},
    ]

    async def main() -> tuple[Served, list[Any]]:
        served = serve(script)
        start = [message("user", "go")]
        body, headers = codex(start, tools=tools)
        items = (await served.ask("responses", body, **headers))["output"]
        outputs = [
            {"type": "custom_tool_call_output", "call_id": items[0]["call_id"], "output": "Success."},
            {"type": "function_call_output", "call_id": items[1]["call_id"], "output": "child"},
        ]
        body, headers = codex([*start, *items, *outputs], tools=tools)
        await served.ask("responses", body, **headers)
        return served, items

    served, items = asyncio.run(main())
    assert (items[0]["type"], items[0]["name"], items[0]["input"]) == (
        "custom_tool_call",
        "apply_patch",
        patch,
    )
    assert (items[1]["type"], items[1]["namespace"], items[1]["name"]) == ("function_call", "agents", "spawn")
    assert served.paths == [None, 0]
    assert served.session.counts["hosted_tools"] == 2
    shown = [tool["function"]["name"] for tool in served.recorder.forest.turns[0].conversation.tools]
    assert shown == ["apply_patch", "agents__spawn"]


def test_a_response_can_be_followed_by_its_id() -> None:
    async def main() -> tuple[Served, int]:
        served = serve(["one", "two"])
        first = await served.ask("responses", {"input": "go", "instructions": "be brief"})
        await served.ask("responses", {"input": "on", "previous_response_id": first["id"]})
        lost = await served.post("responses", {"input": "on", "previous_response_id": "resp_no"})
        return served, lost.status_code

    served, status = asyncio.run(main())
    assert served.paths == [None, 0]
    assert status == 400


def test_instructions_are_given_again_with_every_response_that_follows() -> None:
    async def main() -> Served:
        served = serve(["one", "two", "three"])
        brief = {"instructions": "be brief"}
        last = await served.ask("responses", {"input": [message("developer", "d"), user("go")], **brief})
        last = await served.ask("responses", {"input": "on", "previous_response_id": last["id"], **brief})
        long = {"instructions": "be long", "previous_response_id": last["id"]}
        await served.ask("responses", {"input": "more", **long})
        return served

    served = asyncio.run(main())
    assert served.paths == [None, 0, None]
    assert served.recorder.roots == {"first": 1, "new_conversation": 1}
    told = [turn.conversation.messages for turn in served.recorder.forest.turns]
    assert [m["role"] for m in told[1]] == ["system", "user", "assistant", "user", "assistant"]
    assert told[2][0] == {"role": "system", "content": "be long"}
    assert [m["role"] for m in told[2]].count("system") == 1


def test_items_can_be_referred_to_by_their_ids() -> None:
    async def main() -> tuple[Served, int]:
        served = serve([f"<think>hm</think>so {CALL}{CALL}", "done"])
        items = (await served.ask("responses", {"input": "go", "tools": TOOLS}))["output"]
        outputs = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "5"}
            for item in items
            if "call_id" in item
        ]
        known = [{"type": "item_reference", "id": item["id"]} for item in items]
        await served.ask("responses", {"input": [user("go"), *known, *outputs], "tools": TOOLS})
        lost = [user("go"), {"type": "item_reference", "id": "msg_of_another"}, user("on")]
        return served, (await served.post("responses", {"input": lost})).status_code

    served, status = asyncio.run(main())
    assert served.paths == [None, 0]
    assert status == 400


def test_of_equal_texts_the_one_that_was_said_there_is_echoed() -> None:
    async def main() -> Served:
        served = serve(["  Done.  "] * 3 + ["end"] * 2)
        child = [{"role": "system", "content": "child"}, user("go")]
        both = [{"role": "system", "content": "s"}, user("go")]
        for start in (both, child, child):
            await served.ask("chat/completions", chat(start))
        echo = {"role": "assistant", "content": "Done."}
        for start in (both, child):
            await served.ask("chat/completions", chat([*start, echo, user("on")]))
        return served

    served = asyncio.run(main())
    assert served.paths == [None, None, None, 0, 2]


def test_the_clients_cap_holds_only_downwards_and_the_rest_is_the_rollouts() -> None:
    sampler = SpySampler(lambda prompt, key: "fine")

    async def main() -> None:
        served = Served([], seats={"main": seat(sampler)})
        for cap in (32, 64, 10_000, None):
            body = chat([user(f"go {cap}")], temperature=0.1, top_p=0.2, seed=1, stop=["x"])
            await served.ask("chat/completions", {**body, **({"max_tokens": cap} if cap else {})})

    asyncio.run(main())
    params = list(sampler.params.values())
    assert [p.max_tokens for p in params] == [32, 64, 64, 64]
    assert {(p.temperature, p.top_p) for p in params} == {(1.0, 1.0)}


def test_the_models_name_chooses_the_seat() -> None:
    async def main() -> Served:
        both = {"main": seat(SpySampler(["I play"])), "judge": seat(SpySampler(["I judge"]))}
        served = Served(["unused"], seats=both)
        for model in ("judge", "gpt-anything"):
            await served.ask("chat/completions", {"model": model, "messages": [user("go")]})
        return served

    turns = asyncio.run(main()).recorder.forest.turns
    assert [turn.seat for turn in turns] == ["judge", "main"]


def test_a_name_that_is_no_seat_never_asks_a_frozen_one() -> None:
    async def main() -> Served:
        judge = dataclasses.replace(seat(SpySampler(["I judge"])), frozen=True)
        served = Served(["unused"], seats={"judge": judge, "player": seat(SpySampler(["I play"]))})
        await served.ask("chat/completions", {"model": "gpt-anything", "messages": [user("go")]})
        return served

    [turn] = asyncio.run(main()).recorder.forest.turns
    assert (turn.seat, turn.use) == ("player", "train")


@pytest.mark.parametrize("route", ["chat/completions", "responses", "messages"])
def test_a_limit_ends_all_later_requests_with_400(route: str) -> None:
    bodies = {
        "chat/completions": {"messages": [user("go")]},
        "responses": {"input": "go"},
        "messages": {"messages": [user("go")], "max_tokens": 64},
    }

    async def main() -> list[Any]:
        served = serve(["a", "b", "c"], limits=RolloutLimits(max_turns=1))
        return [await served.post(route, {**bodies[route], "model": f"{i}"}) for i in range(3)]

    answers = asyncio.run(main())
    assert [answer.status_code for answer in answers] == [200, 400, 400]
    assert "the episode is over" in answers[1].text


def test_count_tokens_is_what_a_request_reads() -> None:
    async def main() -> list[tuple[int, int]]:
        served = serve([CALL, "two"])
        body: dict[str, Any] = {"max_tokens": 512, "messages": [user("go")], "system": "be brief"}
        found = []
        for _ in range(2):
            counted = (await served.ask("messages/count_tokens", body))["input_tokens"]
            answer = await served.ask("messages", body)
            found.append((counted, answer["usage"]["input_tokens"]))
            body["messages"] = [
                *body["messages"],
                {"role": "assistant", "content": answer["content"]},
                user("next"),
            ]
        assert len(served.recorder.forest.turns) == 2
        return found

    for counted, read in asyncio.run(main()):
        assert counted == read
