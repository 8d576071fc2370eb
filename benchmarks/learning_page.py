"""docs/results.md and its plots, from the records of `make check-learning`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hyperrl.wiring.run_directory import write_atomic

Record = dict[str, Any]

TITLES = {
    "sort6": "Sort six digits",
    "reverse5": "Write five letters backwards",
    "calculator": "Multiply with a calculator",
    "arithmetic_smollm2": "SmolLM2-135M on arithmetic with one digit",
}
TEXTS = {
    "sort6": (
        "`hyperrl/SortDigits-v0`, a Qwen3 of 0.66 million parameters from random weights, warmed up on gold\n"
        "answers."
    ),
    "reverse5": (
        "`hyperrl/ReverseText-v0` with capitals, the same model. Its most likely answer (greedy) is right\n"
        "from the start, its samples seldom are: what is learned here is to be sure."
    ),
    "calculator": (
        "`hyperrl/Calculate-v0`, products of two numbers of three digits, a Qwen3 of 0.11 million\n"
        "parameters, warmed up on gold calls and answers. It calls the calculator in its first turn and\n"
        "answers in the second."
    ),
    "arithmetic_smollm2": (
        "`hyperrl/Calculate-v0` with `+`, `-` and `*` between two digits, SmolLM2-135M-Instruct as it is,\n"
        "at most 16 tokens a reply, of which the last number counts; 32 samples an iteration."
    ),
}
_COLUMNS = (
    *("algorithm", "seed", "warm start", "before", "after", "gain", "95 % interval", "greedy"),
    *("iterations", "CPU s", "shown"),
)
_HEAD = """\
# Results

Made by `make check-learning` from the files of its runs; do not edit. Which seeds are run is fixed in
`benchmarks/learning_runs.py`, and all of them are in the tables. Success is that of {tasks} held-out tasks,
each sampled once at temperature 1; intervals are 95 %, the gain's over the differences task by task. Each run
must show what its config in `configs/learning` requires ([how](how-to/prove-learning.md)).

{date}, {machine}; {versions}. {count} runs, {cpu} minutes of CPU in all.
"""


def write_page(records: Sequence[Record], docs: Path) -> None:
    """Write ``results.md``, and into ``results/`` the records and a plot for each task."""
    folder = docs / "results"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(map(json.dumps, records))
    write_atomic(folder / "results.json", f"[\n{lines}\n]\n")
    for task, title in TITLES.items():
        if chosen := _of_task(records, task):
            draw_curves(chosen, folder / f"{task}.svg", title=title)
    write_atomic(docs / "results.md", results_page(records))


def results_page(records: Sequence[Record]) -> str:
    """Return the page as Markdown."""
    newest = max(records, key=lambda record: record["date"])
    head = _HEAD.format(
        tasks=min(record["tasks"] for record in records),
        date=newest["date"],
        machine=newest["machine"],
        versions=", ".join(f"{name} {number}" for name, number in newest["versions"].items()),
        count=len(records),
        cpu=round(sum(record["cpu_seconds"] for record in records) / 60),
    )
    sections = [_section(task, chosen) for task in TITLES if (chosen := _of_task(records, task))]
    return "\n".join([head, *sections])


def _of_task(records: Sequence[Record], task: str) -> list[Record]:
    return [record for record in records if record["task"] == task]


def _section(task: str, records: Sequence[Record]) -> str:
    lines = [f"## {TITLES[task]}", "", TEXTS[task], ""]
    lines += [f"![Held-out success over iterations](results/{task}.svg)", ""]
    lines += [
        f"| {' | '.join(_COLUMNS)} |",
        "|" + "---|" * len(_COLUMNS),
    ]
    lines += [_row(record) for record in records]
    for record in records:
        if "calculator_off" in record:
            lines += [
                "",
                "With the calculator switched off (offered as before, every call answered with an error) the",
                f"trained model of seed {record['seed']} solves {record['calculator_off']:.1%};",
                f"where there is none, {record['calculator_none']:.1%}.",
            ]
    return "\n".join([*lines, ""])


def _row(record: Record) -> str:
    first, last = record["curve"][0], record["curve"][-1]
    steps = record["warm"]["steps"]
    warm = f"{steps} steps, to {record['warm']['success']:.2f}" if steps else "none"
    cells = [
        record["algorithm"],
        record["seed"],
        warm,
        f"{record['before']:.3f}",
        f"{record['after']:.3f}",
        f"{record['gain']:+.3f}",
        f"{record['gain_low']:+.3f} to {record['gain_high']:+.3f}",
        f"{first[4]:.3f} to {last[4]:.3f}",
        record["iterations"],
        round(record["cpu_seconds"]),
        "; ".join(record["unmet"]).replace("|", "\\|") or "yes",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def draw_curves(records: Sequence[Record], path: Path, *, title: str) -> None:
    """Write an SVG: held-out success over iterations, a line for each run and a colour for each algorithm."""
    import matplotlib  # noqa: PLC0415 - heavy, and only needed here
    from matplotlib.figure import Figure  # noqa: PLC0415

    algorithms = list(dict.fromkeys(record["algorithm"] for record in records))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "hyperrl"}):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        for record in records:
            number = algorithms.index(record["algorithm"])
            steps = [row[0] for row in record["curve"]]
            rates = [row[1] for row in record["curve"]]
            label = record["algorithm"] if record["seed"] == 0 else None
            axes.plot(steps, rates, color=f"C{number}", marker="o", ms=3, lw=1.2, alpha=0.85, label=label)
            if len(records) == 1:
                low, high = ([row[i] for row in record["curve"]] for i in (2, 3))
                axes.fill_between(steps, low, high, color=f"C{number}", alpha=0.2)
        axes.set(title=title, xlabel="iteration", ylabel="held-out success, sampled", ylim=(0, 1))
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
        figure.savefig(path, format="svg", metadata={"Date": None})
