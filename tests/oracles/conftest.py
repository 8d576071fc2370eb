"""Comparison with functions that nobody here wrote; a table at the end, and one line of figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

_ROWS: list[tuple[str, str, float, float]] = []


@pytest.fixture
def compare():
    """Assert that two results agree, and keep the largest difference for the table."""

    def check(function: str, oracle: str, ours: object, theirs: object, limit: float = 1e-6) -> None:
        difference = float(
            np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)).max(initial=0.0)
        )
        _ROWS.append((function, oracle, difference, limit))
        assert difference <= limit, f"{function} differs from {oracle} by {difference:.3g}, limit {limit:g}"

    return check


def _recorded(reports):
    """What tests of other folders, run beside these, have compared."""
    return [value for report in reports for name, value in report.user_properties if name == "compared"]


def pytest_terminal_summary(terminalreporter):
    if not _ROWS:
        return
    passed, failed = (terminalreporter.stats.get(outcome, []) for outcome in ("passed", "failed"))
    worst: dict[tuple[str, str], tuple[float, float, int]] = {}
    for function, oracle, difference, limit in [*_ROWS, *_recorded(passed)]:
        largest, _, count = worst.get((function, oracle), (0.0, limit, 0))
        worst[function, oracle] = (max(largest, difference), limit, count + 1)
    write = terminalreporter.write_line
    write("")
    write(f"{'function':<34}{'oracle':<58}{'largest difference':>20}{'limit':>10}{'cases':>7}")
    for (function, oracle), (largest, limit, count) in sorted(worst.items()):
        write(f"{function:<34}{oracle:<58}{largest:>20.3g}{limit:>10.0e}{count:>7}")
    figures = {
        "passed": len(passed),
        "failed": len(failed),
        "functions": len(worst),
        "comparisons": sum(row[2] for row in worst.values()),
        "largest_difference": max(row[0] for row in worst.values()),
    }
    write(json.dumps(figures))
