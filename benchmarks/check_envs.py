"""What the environment SDK promises, shown in one go: `make check-envs`.

Runs `hyperrl check --all`, the graders on known cases, the scripted players by difficulty, and the
benchmarks of graders, search and rollouts. The last line is JSON with the figures of all of them. The
exit code is 1 where a check fails or a case is graded wrong; times are printed, not judged.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES = HERE.parent / "tests" / "data" / "answers.json"
HYPERRL = [sys.executable, "-m", "hyperrl.cli"]
BASELINES = {
    "hyperrl/SortDigits-v0": ("digits", (4, 6, 10)),
    "hyperrl/ReverseText-v0": ("letters", (3, 10, 30)),
    "hyperrl/GSM8K-v0": ("steps", ([2, 2], [3, 9])),
    "hyperrl/Calculate-v0": ("calculator", ("works", "none")),
    "hyperrl/Countdown-v0": ("numbers", (3, 4, 6)),
    "hyperrl/Wordle-v0": ("guesses", (6, 4, 2)),
    "hyperrl/PythonMath-v0": ("level", (1, 2, 3)),
    "hyperrl/SearchR1-v0": ("hops", (1, 2, 3)),
    "hyperrl/Desk-v0": ("requests", (1, 2, 3)),
    "hyperrl/CodeTests-v0": ("difficulty", ("easy", "medium", "hard")),
    "hyperrl/RepoFix-v0": ("bugs", (1, 2)),
}
"""The option that makes each environment harder, easiest value first."""


def run(command: list[str]) -> tuple[int, dict[str, Any]]:
    """Run a command, show what it prints, and return its exit code and the JSON of its last line."""
    print("$", " ".join(["hyperrl", *command[3:]] if command[:3] == HYPERRL else command[1:]), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    lines = done.stdout.strip().splitlines()
    try:
        figures = json.loads(lines[-1]) if lines else {}
    except json.JSONDecodeError:
        figures = {}
    return done.returncode, figures


def baselines(episodes: int) -> dict[str, list[float]]:
    """Return each scripted player's success, easiest first."""
    found: dict[str, list[float]] = {}
    for env_id, (option, values) in BASELINES.items():
        for value in values:
            arguments = ["--policy", "baseline", "--env-arg", f"{option}={value}", "--tasks", str(episodes)]
            _, figures = run([*HYPERRL, "eval", env_id, *arguments, "--json"])
            found.setdefault(env_id, []).append(round(figures.get("eval/success", float("nan")), 3))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=40, help="episodes of each scripted player")
    parser.add_argument("--rollout", type=int, default=8000, help="episodes of the rollout benchmark")
    options = parser.parse_args()
    check_code, checks = run([*HYPERRL, "check", "--all", "--json"])
    grade_code, grades = run([*HYPERRL, "grade", str(CASES)])
    success = baselines(options.episodes)
    _, grading = run([sys.executable, str(HERE / "bench_grading.py"), "--json"])
    _, search = run([sys.executable, str(HERE / "bench_search.py"), "--json"])
    rollout_command = [sys.executable, str(HERE / "bench_rollout.py"), "--json"]
    rollout_code, rollout = run([*rollout_command, "--episodes", str(options.rollout)])
    falls = {env_id: rates == sorted(rates, reverse=True) for env_id, rates in success.items()}
    print(
        json.dumps(
            {
                "envs": {"ok": checks.get("ok"), "of": checks.get("of"), "failures": checks.get("failures")},
                "cases": grades,
                "baseline_success": success,
                "grading": grading,
                "search": search,
                "rollout": rollout,
            }
        )
    )
    return int(bool(check_code or grade_code or rollout_code or not all(falls.values())))


if __name__ == "__main__":
    sys.exit(main())
