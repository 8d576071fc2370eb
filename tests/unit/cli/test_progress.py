"""Progress of long jobs: lines for logs, and where things lie when a job does not reach its end."""

from __future__ import annotations

import io
import threading
import time

import pytest
from rich.console import Console

from hyperrl.cli.display import BarDisplay, LineDisplay, shown


def make_lines(*, every_s: float = 0.005, idle_every_s: float = 0.02) -> tuple[LineDisplay, io.StringIO]:
    text = io.StringIO()
    return LineDisplay(Console(file=text, width=40), every_s=every_s, idle_every_s=idle_every_s), text


def wait_for(text: io.StringIO, lines: int) -> None:
    deadline = time.monotonic() + 60
    while text.getvalue().count("\n") < lines:
        assert time.monotonic() < deadline, text.getvalue()
        time.sleep(0.005)


def test_lines_come_although_nothing_advances() -> None:
    display, text = make_lines()
    display.start("training", 10)
    display.advance(0, "updating")
    wait_for(text, 3)
    display.stop()
    assert all("training 0/10" in line and "updating" in line for line in text.getvalue().splitlines())


def test_a_phase_ends_with_its_last_line_and_no_thread() -> None:
    threads = threading.active_count()
    display, text = make_lines(every_s=600)
    display.start("first", 2)
    display.advance(2, "reward 0.5")
    display.start("second", 1)
    display.stop()
    display.stop()
    assert threading.active_count() == threads
    first, second = text.getvalue().splitlines()
    assert first.startswith("first 2/2")
    assert first.endswith("reward 0.5")
    assert second.startswith("second 0/1")


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_says_where_things_lie(capsys, end: type[BaseException]) -> None:
    for kept, said in (("runs/x keeps model", "runs/x keeps model"), ("", "nothing was written")):
        with pytest.raises(end), shown(lambda kept=kept: kept):
            raise end
        assert capsys.readouterr().err == f"stopped before the end: {said}\n"


def test_an_error_says_where_things_lie_only_if_there_are_any(capsys) -> None:
    with pytest.raises(ValueError, match="bad"), shown():
        raise ValueError("bad")
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match="bad"), shown(lambda: "runs/x keeps model"):
        raise ValueError("bad")
    assert "runs/x keeps model" in capsys.readouterr().err


def test_a_terminal_shows_a_bar_with_the_latest_numbers() -> None:
    text = io.StringIO()
    display = BarDisplay(Console(file=text, width=100, force_terminal=True))
    display.start("training", 4)
    display.advance(1, "reward 0.250")
    display.advance(1)
    display.note("iteration 2: held-out success 0.500 sampled")
    display.stop()
    display.advance(1)
    written = text.getvalue()
    assert "training" in written
    assert "2/4" in written
    assert "reward 0.250" in written
    assert "held-out success 0.500" in written
    assert written.endswith("\n") or "\x1b[?25h" in written, "the cursor must be shown again"
