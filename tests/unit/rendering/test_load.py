from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from hyperrl.agents.rendering import ChatTemplate, Renderer, TemplateRenderer, load_renderer
from hyperrl.errors import ModelError, TemplateError

USER = {"role": "user", "content": "hi"}


@pytest.fixture
def copied(chatml_dir: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(chatml_dir, tmp_path / "model"))


def test_a_renderer_keeps_its_protocol(chatml: TemplateRenderer) -> None:
    assert isinstance(chatml, Renderer)
    assert (chatml.vocab_size, len(chatml.stop_ids)) == (261, 1)
    assert chatml.decode([chatml.pad_id]) == "<|endoftext|>"


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent: no such model directory\. Expected a folder in the"):
        load_renderer(tmp_path / "absent")


def test_a_directory_without_tokenizer(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    with pytest.raises(
        ModelError, match=r"no tokenizer\.json \(found chat_template\.jinja, tokenizer_config"
    ):
        load_renderer(copied)


def test_an_unreadable_tokenizer(copied: Path) -> None:
    (copied / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer\.json: not readable as JSON"):
        load_renderer(copied)
    (copied / "tokenizer.json").write_text("[]")
    with pytest.raises(ModelError, match="expected a JSON object, found list"):
        load_renderer(copied)


def test_no_chat_template(copied: Path) -> None:
    (copied / "chat_template.jinja").unlink()
    with pytest.raises(
        TemplateError, match=r"model: the tokenizer has no chat template\. Expected chat_template"
    ):
        load_renderer(copied)


def test_the_template_may_stand_in_the_config(copied: Path) -> None:
    template = (copied / "chat_template.jinja").read_text()
    expected = load_renderer(copied).first([USER])
    (copied / "chat_template.jinja").unlink()
    for written in (template, [{"name": "rag", "template": "x"}, {"name": "default", "template": template}]):
        config = {"eos_token": {"content": "<|im_end|>"}, "chat_template": written}
        (copied / "tokenizer_config.json").write_text(json.dumps(config))
        assert load_renderer(copied).first([USER]) == expected


def test_further_stop_ids_come_from_the_generation_config(copied: Path) -> None:
    end = load_renderer(copied).tokenizer.control_ids["<|endoftext|>"]
    for listed in (end, [end]):
        (copied / "generation_config.json").write_text(json.dumps({"eos_token_id": listed}))
        assert load_renderer(copied).stop_ids[1:] == (end,)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}", "is not valid Jinja"),
        ("{{ messages | length }}", "leaves the text of messages out"),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "must end in a control token"),
        ("{{ raise_exception('only for images') }}", "only for images"),
        (
            "{% for m in messages %}{{ m.content }}<|im_end|>{{ loop.index }}{% endfor %}",
            "depends on the history",
        ),
        (
            "{% for m in messages %}{{ m.content }}<|im_end|>{{ ''.__class__.__mro__ }}{% endfor %}",
            "SecurityError",
        ),
    ],
)
def test_a_template_that_cannot_be_bridged(copied: Path, template: str, reason: str) -> None:
    (copied / "chat_template.jinja").write_text(template)
    with pytest.raises(TemplateError, match=f"model: .*{reason}"):
        load_renderer(copied)


def test_options_reach_the_template(qwen3_dir: Path) -> None:
    renderer = load_renderer(qwen3_dir, template_options={"enable_thinking": False})
    for ids in (renderer.first([USER]), renderer.bridge([], [USER])):
        assert renderer.decode(ids).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_the_date_of_templates_stands_still() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", named_tokens={})
    assert template.render([]) == "26 Jul 2024"


def test_generation_blocks_and_loop_controls_are_known() -> None:
    source = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    )
    assert ChatTemplate(source, named_tokens={}).render([USER, USER]) == "hi"


@pytest.mark.parametrize("missing", ["tokenizers", "jinja2"])
def test_a_missing_package_names_the_install_command(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "try:\n    import hyperrl.agents.rendering\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"MissingExtraError {missing} is needed")
    assert "pip install 'hyperrl[agents]'" in done.stdout


def test_rendering_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, hyperrl.agents.rendering; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
