"""What is promised of agent programs, shown with the real Codex and DeepSeek Harness: `make check-programs`.

Plays one repair with each alone, then every other test of tests/programs, those included that take minutes:
failing vendors, limits, 100 cancelled and 20 killed episodes of each program, and two updates of a
tiny model by `hyperrl train`. Prints the episodes turn by turn, their connections, and how each fault ended.
The last line is JSON with the figures; the exit code is 1 where a test failed or was skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
REPAIR = "tests/programs/test_programs_repair.py"
PARTS = ((REPAIR,), ("tests/programs", f"--ignore={REPAIR}", "--numprocesses=2", "--dist=worksteal"))
"""Arguments of each run of pytest. The first has the machine to itself: its times are those of an episode."""
DEMANDS = {"HYPERRL_REQUIRE_PROGRAMS": "1", "HYPERRL_REQUIRE_ASSETS": "1", "HYPERRL_PROGRAMS": "full"}

Figures = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """What a run of pytest found.

    Attributes:
        passed: how many tests did.
        unmet: names of those that failed, broke off or were skipped.
        figures: what the tests noted of real programs, in order.
    """

    passed: int
    unmet: list[str]
    figures: list[Figures]


def main(arguments: Sequence[str] | None = None, parts: Iterable[Sequence[str]] = PARTS) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-k", default="", help="only tests that fit this expression of pytest's")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    reports = [play([*part, "-k", options.k] if options.k else part) for part in parts]
    figures = sorted((n for report in reports for n in report.figures), key=lambda noted: noted["program"])
    show(figures)
    unmet = [name for report in reports for name in report.unmet]
    passed = sum(report.passed for report in reports)
    print(json.dumps(summarise(figures, passed=passed, unmet=unmet, seconds=time.monotonic() - began)))
    return int(bool(unmet) or not passed)


def play(arguments: Sequence[str]) -> Report:
    """Run pytest and read its report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "-o", "junit_family=xunit1"]
        print("$ pytest", *arguments, flush=True)
        environment = {"OMP_NUM_THREADS": "1", **os.environ, **DEMANDS}
        code = subprocess.run([*command, *arguments], cwd=ROOT, env=environment, check=False).returncode
        if not report.exists():
            return Report(passed=0, unmet=[f"pytest ended with {code}"], figures=[])
        return read_report(report)


def read_report(path: Path) -> Report:
    """Read a report of pytest in JUnit's format."""
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    unmet = [
        str(case.get("name"))
        for case in cases
        if any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
    ]
    noted = [
        json.loads(str(entry.get("value")))
        for case in cases
        for entry in case.iter("property")
        if entry.get("name") == "figures"
    ]
    return Report(passed=len(cases) - len(unmet), unmet=unmet, figures=noted)


def show(figures: Sequence[Figures]) -> None:
    """Print the episodes, their connections, and the faults."""
    for noted in figures:
        if "turns" in noted:
            print("\n".join(["", *episode_lines(noted)]))
    print()
    for noted in figures:
        if "fault" in noted:
            print(
                f"{noted['program']:9} {noted['fault']:8} -> {noted['kind']:15}"
                f" after {noted['requests']} requests in {noted['seconds']:.1f} s"
            )


def episode_lines(noted: Figures) -> list[str]:
    """Return an episode as a table of its turns, and where it connected to."""
    lines = [
        f"{noted['program']}: {len(noted['turns'])} turns in {noted['seconds']:.1f} s,"
        f" CPU {noted['cpu_here_s']:.2f} s here and {noted['cpu_program_s']:.2f} s in the program",
        f"{'turn':>4}  {'tools':30} {'tokens in':>9} {'tokens out':>10} {'reward':>6}",
    ]
    for number, turn in enumerate(noted["turns"], 1):
        tools = ", ".join(turn["tools"]) or "-"
        numbers = f"{turn['tokens_in']:9} {turn['tokens_out']:10} {turn.get('reward', ''):>6}"
        lines.append(f"{number:4}  {tools:30} {numbers}")
    reached = Counter(f"{address} port {port}" for address, port in noted["connections"])
    return [*lines, "connections: " + ", ".join(f"{count} x {place}" for place, count in reached.items())]


def summarise(figures: Sequence[Figures], *, passed: int, unmet: Sequence[str], seconds: float) -> Figures:
    """Return the figures of the last line."""
    return {
        "passed": passed,
        "unmet": list(unmet),
        "seconds": round(seconds),
        "episodes": {noted["program"]: _episode(noted) for noted in figures if "turns" in noted},
        "faults": {f"{n['program']} {n['fault']}": n["kind"] for n in figures if "fault" in n},
        "ended": {noted["program"]: _ended(noted) for noted in figures if "left" in noted},
        "grad_norms": {
            noted["program"]: [round(norm, 4) for norm in noted["grad_norms"]]
            for noted in figures
            if "grad_norms" in noted
        },
    }


def _episode(noted: Figures) -> Figures:
    turns = noted["turns"]
    return {
        "turns": len(turns),
        "tokens_in": sum(turn["tokens_in"] for turn in turns),
        "tokens_out": sum(turn["tokens_out"] for turn in turns),
        "reward": turns[-1]["reward"],
        "seconds": round(noted["seconds"], 1),
        "cpu_here_s": round(noted["cpu_here_s"], 2),
        "cpu_program_s": round(noted["cpu_program_s"], 2),
        "reached": sorted({address for address, _ in noted["connections"]}),
    }


def _ended(noted: Figures) -> Figures:
    return {
        **{name: noted[name] for name in ("cancelled", "cancelled_in_a_command", "killed")},
        **noted["left"],
    }


if __name__ == "__main__":
    sys.exit(main())
