"""The pages on algorithms say what the code does: presets, parts, the example, and a test for each report."""

import re

import pytest
import yaml
from source_tree import ROOT
from test_feature_map import quoted, resolve

from hyperrl.train.advantages import ADVANTAGES
from hyperrl.train.algorithm_config import PRESETS, AlgorithmConfig
from hyperrl.train.config import option_names
from hyperrl.train.losses import LOSSES

ALGORITHMS = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
REPORTS = (ROOT / "docs" / "reported-bugs.md").read_text(encoding="utf-8")


def table(page, head):
    """The rows below a table's first column name."""
    lines = page.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {head} |")) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def test_the_table_of_presets_is_the_presets():
    rows = table(ALGORITHMS, "name")
    found = {}
    for name, sets, _ in rows:
        parts = [yaml.safe_load(text) for text in quoted(sets)]
        found[name.strip("`")] = {key: value for part in parts for key, value in part.items()}
    defaults = found.pop("grpo")
    assert found == {name: dict(parts) for name, parts in PRESETS.items() if name != "grpo"}
    config = AlgorithmConfig().model_dump()
    assert {name: config[name] for name in defaults} == defaults


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("`advantage`", set(ADVANTAGES)),
        ("`loss`", set(LOSSES)),
        (
            "`aggregation`",
            {
                "token_mean",
                "seq_mean_token_mean",
                "seq_mean_token_sum",
                "seq_mean_token_sum_norm",
                "group_mean",
            },
        ),
        ("`kl.estimator`", {"k1", "k2", "k3", "k3+"}),
        ("`correction.mode`", {"off", "truncate", "mask"}),
    ],
)
def test_every_part_has_its_formula(head, names):
    assert {row[0].strip("`") for row in table(ALGORITHMS, head)} == names


@pytest.mark.parametrize("head", ["verl", "`GRPOConfig`"])
def test_the_dictionaries_name_options_that_exist(head):
    names = [*option_names(), "algorithm.kl"]
    codes = {code for row in table(ALGORITHMS, head) for code in quoted(row[1])}
    options = {re.split(r"[:\s]", code)[0] for code in codes if ":" in code or "." in code.strip(".")}
    unknown = [option for option in options if not any(f".{name}".endswith(f".{option}") for name in names)]
    assert unknown == []


def test_the_example_is_the_file():
    source = (ROOT / "examples" / "own_algorithm.py").read_text(encoding="utf-8")
    assert f"```python\n{source}```" in ALGORITHMS


@pytest.mark.parametrize("row", table(REPORTS, "report"), ids=lambda row: row[0])
def test_a_reported_bug_is_held_by_a_test(row):
    report, what, tests = row
    assert re.search(r"\d|float32", report)
    assert what
    assert quoted(tests)
    for reference in quoted(tests):
        assert reference.partition("::")[2].startswith("test_")
        resolve(reference, ROOT)
