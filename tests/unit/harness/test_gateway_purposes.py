"""What a request is for, told by its form alone: the words of real programs, and of environments."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")

from hyperrl.harness.gateway.exchange import ModelRequest
from hyperrl.harness.gateway.offered_tools import OfferedTool, OfferedTools
from hyperrl.harness.gateway.purposes import Purpose, Purposes


def purpose(system: str, *said: str, tools: int = 0, begun: bool = True) -> Purpose:
    """What a request of a system prompt and user messages is taken for."""
    offered = OfferedTools()
    for number in range(tools):
        offered.add(OfferedTool("function", f"tool{number}"), "", None)
    messages = [{"role": "user", "content": text} for text in said]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return Purposes().tell(ModelRequest(model="m", messages=messages, tools=offered), {}, begun=begun)


@pytest.mark.parametrize(
    "system",
    [
        "You are a title generator. You output ONLY a thread title. Nothing else.",
        "Create a concise title for an AI coding-assistant session from its first messages.",
        "Analyze if this message indicates a new conversation topic. If it does, extract a 2-3 word title.",
        "Generate a concise title (3-7 words) that captures the main topic or goal of this coding session.",
    ],
)
def test_what_asks_for_the_title_of_a_conversation_is_a_title_request(system: str) -> None:
    assert purpose(system, "fix the bug", begun=False) == "title"
    assert purpose(system, "fix the bug", begun=False, tools=1) == "task"


@pytest.mark.parametrize(
    "system",
    [
        "You are a helpful chat assistant. Answer with the title of the book that is described.",
        "You take part in a conversation on a topic of the user's choice. Be brief.",
        "Session 4 of the course. Extract the title of the paper from its first page.",
        "Find the title of the song that the two persons in this conversation talk about.",
        "You are playing 20 questions. In this chat you guess the movie title.",
    ],
)
def test_an_environment_that_is_about_titles_is_learned_from(system: str) -> None:
    assert purpose(system, "go", begun=False) == "task"


@pytest.mark.parametrize(
    ("system", "last"),
    [
        ("s", "You are performing a CONTEXT CHECKPOINT COMPACTION. Write a handoff summary."),
        ("s", "You are now acting as a compaction engine for this AI coding agent."),
        (
            "s",
            "Your task is to create a detailed summary of the conversation so far, paying close attention.",
        ),
        ("s", f"Provide a prompt for continuing our conversation above. {'x ' * 2000}"),
        ("s", "Summarize the conversation history so that the work can continue with less context."),
        ("s", "First, reason in your scratchpad. Then, generate the <state_snapshot>."),
        ("You are a helpful AI assistant tasked with summarizing conversations.", "Do it."),
    ],
)
def test_what_asks_for_a_summary_of_what_was_said_is_a_compaction(system: str, last: str) -> None:
    assert purpose(system, "task", last, tools=2) == "compaction"
    assert purpose(system, "task", last, tools=2, begun=False) == "task"


@pytest.mark.parametrize(
    "last",
    [
        "Summarize the conversation between Ann and Bob so that Carl has the context.",
        "Write a summary of the session notes; continue with the next file.",
    ],
)
def test_a_task_about_conversations_is_no_compaction(last: str) -> None:
    assert purpose("s", "task", last) == "task"


def test_a_child_is_told_by_the_parent_that_it_names() -> None:
    merged = 'say hi\n\nYour parent agent id is "session-1". Report to it.'
    assert purpose("s", merged, tools=3) == "subagent"
