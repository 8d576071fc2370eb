"""Reports on chat templates, against templates whose makers say what they do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from families import write_family

from hyperrl.agents.rendering.inspection import TemplateReport, inspect_template
from hyperrl.errors import TemplateError

Inspect = Callable[[str], TemplateReport]


@pytest.fixture(scope="module")
def inspect(trl_templates: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Inspect:
    folder = tmp_path_factory.mktemp("families")
    return functools.cache(lambda name: inspect_template(write_family(folder / name, trl_templates[name])))


def test_the_real_qwen3(qwen3_dir: Path) -> None:
    report = inspect_template(qwen3_dir)
    assert report.usable_with_tools
    assert report.bridged == (("user",), ("tool",), ("tool", "tool"), ("tool", "user"), ("system",))
    assert report.refused == {}
    assert next(iter(report.stop_tokens.values())) == "<|im_end|>"
    assert report.generation_suffix == "<|im_start|>assistant\n"
    assert not report.prefix_preserving
    found = {one.conversation: one for one in report.prefix_breaks}["user, answer with reasoning, user"]
    assert "A thought of mine." in found.before
    assert "A thought of mine." not in found.after
    assert [one.conversation for one in report.rewrites] == ["an answer with reasoning"]
    assert report.strips == (
        "reasoning of earlier turns, in reasoning_content",
        "reasoning of earlier turns, in the content",
    )
    assert report.tools == "template"


def test_an_option_of_the_template_moves_the_generation_suffix(qwen3_dir: Path) -> None:
    report = inspect_template(qwen3_dir, template_options={"enable_thinking": False})
    assert report.generation_suffix == "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert any("reasoning is switched off" in one for one in report.adds)


def test_the_real_smollm2(smollm2_tokenizer_dir: Path) -> None:
    report = inspect_template(smollm2_tokenizer_dir)
    assert report.usable_with_tools
    assert report.prefix_preserving
    assert report.rewrites == ()
    assert report.tools == "hyperrl"
    assert any("named SmolLM" in one for one in report.adds)
    assert any("unknown to it" in one for one in report.strips)


def test_templates_made_for_training_keep_their_prefix_where_tools_answer(
    inspect: Inspect, trl_templates: dict[str, str]
) -> None:
    """Their makers' promise, apart from those that end a conversation with another token."""
    named = [name for name in trl_templates if name.endswith("_training")]
    broken = {
        name
        for name in named
        if "user, tool call, tool" in {one.conversation for one in inspect(name).prefix_breaks}
    }
    assert broken <= {"phi3_training", "phi3_5_training", "gptoss_training"}
    assert inspect("qwen3_training").prefix_preserving
    assert not inspect("qwen3").prefix_preserving
    assert inspect("qwen3_instruct_2507").prefix_preserving


def test_a_refused_template_is_reported_with_the_failing_example(inspect: Inspect) -> None:
    report = inspect("gptoss")
    assert not report.usable
    assert report.bridged == ()
    assert "cannot be bridged" in report.refused["user",]
    assert report.stop_tokens


def test_what_a_template_can_do_without_tools(inspect: Inspect) -> None:
    report = inspect("deepseek_r1_distill")
    assert report.usable
    assert not report.usable_with_tools
    assert "depends on the history" in report.refused["tool",]
    assert report.opens_reasoning
    assert "tool results" in inspect("phi3").strips
    assert "white space around a user's text" in inspect("llama3").strips
    assert any(one.startswith("a system message in the middle: ") for one in inspect("qwen3_6").refuses)
    assert not inspect("gemma4").calls_readable


def test_every_family_is_reported(inspect: Inspect, trl_templates: dict[str, str]) -> None:
    for name in trl_templates:
        report = inspect(name)
        assert set(report.bridged).isdisjoint(report.refused)
        assert report.usable == (("user",) not in report.refused)


def test_a_template_that_renders_nothing_is_an_error(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "broken", "{{ raise_exception('never') }}")
    with pytest.raises(TemplateError, match="refuses the messages"):
        inspect_template(folder)
