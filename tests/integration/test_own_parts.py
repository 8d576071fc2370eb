"""A loss and an advantage from a user's own module: a few lines, named in the config, and nothing else."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from hyperrl.errors import ConfigError, InvariantError
from hyperrl.train.registry import Registry
from hyperrl.wiring.display import Silent
from hyperrl.wiring.training import run_training

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm.py"
OWN = {
    "advantage": "own_algorithm:opo",
    "loss": "own_algorithm:sapo",
    "options": {"tau_pos": 1.0, "tau_neg": 1.05},
}


def train(config):
    run_training(config, Silent())
    lines = (config.run.dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return next(line for line in map(json.loads, lines) if "actor/pg_loss" in line)


def test_a_part_of_ones_own_takes_at_most_fifteen_lines():
    """Imports, signature, docstring and body of either function, as a module of its own would have them."""
    tree = ast.parse(EXAMPLE.read_text(encoding="utf-8"))
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert [f.name for f in functions] == ["sapo", "opo"]
    for function in functions:
        lines = function.end_lineno - function.lineno + 1
        assert len(imports) + lines <= 15


def test_a_loss_and_an_advantage_of_ones_own_train_by_the_config_alone(make_run, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    line = train(make_run(algorithm=OWN, iterations=1))
    assert line["actor/updates_applied"] == 1
    assert line["actor/grad_norm"] > 0
    ours = train(make_run("grpo", iterations=1))
    assert line["actor/pg_loss"] != ours["actor/pg_loss"]


def test_what_is_wrong_with_a_part_of_ones_own_is_said(make_run, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "wrong_parts.py").write_text(
        "from hyperrl.train.losses import TokenLosses\n"
        "def mean(batch, config):\n    return TokenLosses(-(batch.advantages * batch.logprobs).mean())\n"
        "number = 3\n",
        encoding="utf-8",
    )
    try:
        with pytest.raises(InvariantError, match=r"'wrong_parts:mean' must return .* losses of shape \(\)"):
            train(make_run("mean", algorithm={"loss": "wrong_parts:mean"}, iterations=1))
        for loss, message in [
            ("wrong_parts:number", "is a int, not a function"),
            ("wrong_parts:mena", "cannot be imported"),
            (":mean", "cannot be imported"),
        ]:
            with pytest.raises(ConfigError, match=message):
                train(make_run("refused", algorithm={"loss": loss}))
    finally:
        sys.modules.pop("wrong_parts", None)


def test_a_registered_name_is_found_and_cannot_be_taken_twice():
    registry = Registry("part")

    @registry.register("mine")
    def mine():
        return 1

    assert registry.find("mine") is mine
    assert list(registry) == ["mine"]
    assert "mine" in registry
    registry.register("mine")(mine)  # a module that is read again
    with pytest.raises(ConfigError, match="register yours under another name"):
        registry.register("mine")(len)
    with pytest.raises(ConfigError, match=r"unknown part 'mime'; there are mine.*'module:function'.*'mine'"):
        registry.find("mime")
