"""Trains every algorithm, demands a gain of each run, and makes the results page: `make check-learning`.

    python benchmarks/check_learning.py [--list] [--only NAME ...] [--jobs 2] [--dir runs/check-learning]

Two runs at a time, one thread each. A run that has ended with the config it has now is not run again, so
that an interrupted check goes on where it was; `--again` forgets the ones named with `--only`. When all are
there, docs/results.md and its plots are made from their files. The last line is JSON; the exit code is 1
where a run did not show what it must.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from learning_page import write_page
from learning_runs import RUNS, LearningRun, execute, read_record, walk_records

HERE = Path(__file__).resolve()
TIMEOUT_S = 5400


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the same clean-up as Ctrl-C
    runs = {run.name: run for run in RUNS}
    if options.list:
        print("\n".join(runs))
        return 0
    if unknown := set(options.only or ()) - set(runs):
        print(f"no run is called {', '.join(sorted(unknown))}; --list names them", file=sys.stderr)
        return 2
    if options.run:
        execute(runs[options.run], options.dir)
        return 0
    chosen = {name: run for name, run in runs.items() if not options.only or name in options.only}
    if options.again:
        for name in options.only or ():
            (options.dir / name / "summary.json").unlink(missing_ok=True)
    began = time.monotonic()
    broken = run_missing(list(chosen.values()), options.dir, jobs=options.jobs)
    records = list(walk_records(chosen, options.dir))
    if len(records) == len(runs):
        write_page(records, options.docs)
        print(f"wrote {options.docs / 'results.md'}")
    figures = summarise(records, broken, seconds=time.monotonic() - began)
    print(json.dumps(figures))
    return 1 if figures["failed"] else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name the runs and stop")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these runs only; no page is made")
    parser.add_argument("--again", action="store_true", help="run those of --only although they are done")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--dir", type=Path, default=Path("runs/check-learning"), help="where runs lie")
    parser.add_argument("--docs", type=Path, default=HERE.parent.parent / "docs", help="where the page goes")
    parser.add_argument("--run", metavar="NAME", help=argparse.SUPPRESS)  # one run, in this process
    return parser.parse_args(arguments)


def run_missing(runs: Sequence[LearningRun], root: Path, *, jobs: int) -> list[str]:
    """Run what has no record, longest first; return the names of those that broke off."""
    missing = sorted((r for r in runs if read_record(r, root) is None), key=lambda r: -r.cost)
    print(f"{len(runs) - len(missing)} of {len(runs)} runs are done, {len(missing)} to go", flush=True)
    processes: list[subprocess.Popen[bytes]] = []
    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        return [name for name in pool.map(lambda r: _run_one(r, root, processes), missing) if name]
    finally:  # Ctrl-C included: nothing goes on behind our back
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            if process.poll() is None:
                process.terminate()


def _run_one(run: LearningRun, root: Path, processes: list[subprocess.Popen[bytes]]) -> str:
    """Run in a process of its own; return the name if it broke off, else nothing."""
    folder = root / run.name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(HERE), "--run", run.name, "--dir", str(root)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        processes.append(process)
        try:
            process.wait(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    record = read_record(run, root)
    print(describe(record) if record else f"{run.name}: broke off, see {folder / 'log.txt'}", flush=True)
    return "" if record else run.name


def describe(record: dict[str, Any]) -> str:
    verdict = "; ".join(record["unmet"]) or "ok"
    return (
        f"{record['name']}: {record['before']:.3f} -> {record['after']:.3f}, gain {record['gain']:+.3f}"
        f" [{record['gain_low']:.3f}, {record['gain_high']:.3f}], {record['seconds']:.0f} s: {verdict}"
    )


def summarise(records: Sequence[dict[str, Any]], broken: Sequence[str], *, seconds: float) -> dict[str, Any]:
    """Return the figures of the last line."""
    return {
        "runs": len(records),
        "failed": [*broken, *(record["name"] for record in records if record["unmet"])],
        "smallest_gain": min((record["gain"] for record in records), default=None),
        "gain": {record["name"]: record["gain"] for record in records},
        "calculator_off": next((r["calculator_off"] for r in records if "calculator_off" in r), None),
        "cpu_seconds": round(sum(record["cpu_seconds"] for record in records)),
        "seconds": round(seconds),
    }


if __name__ == "__main__":
    sys.exit(main())
