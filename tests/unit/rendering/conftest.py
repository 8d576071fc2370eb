from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from families import write_family

if TYPE_CHECKING:
    from hyperrl.agents.rendering import TemplateRenderer


def _load(model_dir: Path) -> TemplateRenderer:
    pytest.importorskip("jinja2")
    from hyperrl.agents.rendering import load_renderer

    return load_renderer(model_dir)


@pytest.fixture(scope="session")
def qwen3(qwen3_dir: Path) -> TemplateRenderer:
    return _load(qwen3_dir)


@pytest.fixture(scope="session")
def smollm2(smollm2_tokenizer_dir: Path) -> TemplateRenderer:
    return _load(smollm2_tokenizer_dir)


@pytest.fixture(scope="session")
def chatml(chatml_dir: Path) -> TemplateRenderer:
    return _load(chatml_dir)


@pytest.fixture(scope="session")
def family(
    trl_templates: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], TemplateRenderer]:
    """Makes the renderer of a chat template from trl, over a small tokenizer with its control tokens."""
    folder = tmp_path_factory.mktemp("families")
    made: dict[str, TemplateRenderer] = {}

    def make(name: str) -> TemplateRenderer:
        if name not in made:
            made[name] = _load(write_family(folder / name, trl_templates[name]))
        return made[name]

    return make
