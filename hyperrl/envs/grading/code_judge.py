"""The program that runs tests against a submission inside a sandbox, where nothing is installed.

Three processes share the sandbox:

- the *judge* knows the tests and the nonce that marks its results. It is hidden from processes of its
  user (not dumpable), and reads the job to its end before any submitted code runs;
- the *spawner* was forked from it before it read the job, has no file of it open, and forks runners;
- a *runner* holds the submission. It is asked for calls of the function and answers with plain values.
  Where the kernel has Landlock it is in a domain of its own, out of which it can look into no other process.

So a submission finds neither tests nor expected values in its process, nor anything to write a verdict
to; whatever it does to its own process is an answer, or none. For tests of the kind ``call``, expected
values are not in the sandbox at all.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import types
from collections.abc import Callable
from typing import Any

from hyperrl.envs.grading.plain_values import decode, encode
from hyperrl.envs.sandbox.landlock import enter_domain, landlock_abi

__all__ = ["main"]

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_LARGEST_MESSAGE = 1 << 19
_TEXT_CHARS = 300
_TEST = "<test>"


# Messages: four bytes of length, then JSON.


def _send(line: socket.socket, message: object) -> None:
    data = json.dumps(message).encode()
    line.sendall(len(data).to_bytes(4, "big") + data)


def _receive(line: socket.socket) -> Any:
    """Return the next message; None at the end, and for one that is too long or no JSON."""
    size = int.from_bytes(_read(line, 4) or b"", "big")
    data = _read(line, size) if 0 < size <= _LARGEST_MESSAGE else None
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None


def _read(line: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = line.recv(min(size - len(data), 65536))
        if not part:
            return None
        data += part
    return bytes(data)


# The runner, and the spawner that forks it.


def _spawn_runners(control: socket.socket) -> None:
    """Fork a runner for every socket that comes; answer with its process id. Returns in a runner only."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        _, lines, _, _ = socket.recv_fds(control, 1, 1)
        if not lines:
            os._exit(0)
        process = os.fork()
        if process == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _part_from_judge()
            _run(socket.socket(fileno=lines[0]))
            os._exit(0)
        os.close(lines[0])
        control.sendall(process.to_bytes(4, "big"))


def _part_from_judge() -> None:
    """Let this process look into no other, nor, from Linux 6.12, signal one; even where it is root."""
    abi = landlock_abi()
    if abi:
        with contextlib.suppress(OSError):  # a kernel that has it may still refuse it; the judge is hidden
            _set_flag(_PR_SET_NO_NEW_PRIVS, 1)
            enter_domain(abi)


def _leave_judge(control: socket.socket) -> None:
    """Close everything that the judge has open, but ``control``."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    os.closerange(3, control.fileno())
    os.closerange(control.fileno() + 1, 4096)


def _run(line: socket.socket) -> None:
    job = _receive(line)
    function, problem = _load(job["sources"], job["entry_point"])
    _send(line, {"problem": problem})
    while function is not None:
        call = _receive(line)
        if call is None:
            return
        _send(line, {"id": call["id"], **_call(function, call)})


def _load(sources: list[str], entry_point: str) -> tuple[Callable[..., Any] | None, str | None]:
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    try:
        for source in sources:
            exec(compile(source, "solution.py", "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # noqa: BLE001  # submitted code raises what it likes
        return None, _describe(error)
    function = module.__dict__.get(entry_point)
    if not callable(function):
        return None, f"there is no function {entry_point!r} after the code has run"
    return function, None


def _call(function: Callable[..., Any], call: dict[str, Any]) -> dict[str, Any]:
    try:
        value = encode(function(*decode(call["args"]), **decode(call["kwargs"])))
        if len(json.dumps(value)) > _LARGEST_MESSAGE - 1000:
            raise ValueError(f"the value takes more than {_LARGEST_MESSAGE} bytes")
        return {"value": value}
    except BaseException as error:  # noqa: BLE001  # submitted code raises what it likes
        return {"raised": [kind.__name__ for kind in type(error).__mro__], "text": _describe(error)}


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # a __str__ that raises
        text = ""
    return f"{type(error).__name__}: {text}"[:_TEXT_CHARS]


# The judge.


class _NoAnswerError(BaseException):
    """The runner ended instead of answering. Not an Exception, so that no test takes it for an answer."""


class _OverrunError(BaseException):
    """The time for this test is over."""


class _NotLoadedError(BaseException):
    """The submission cannot be run at all."""


class _UnsendableError(BaseException):
    """The test passes something that is not plain data: a fault of the test."""


class _Submission:
    """The submitted function, in a runner; after its end the next call starts another."""

    def __init__(self, control: socket.socket, job: dict[str, Any]) -> None:
        self._control = control
        self._job = {"sources": job["sources"], "entry_point": job["entry_point"]}
        self._line: socket.socket | None = None
        self._process = 0
        self._calls = 0

    def start(self) -> None:
        """Start a runner if there is none. Raises _NotLoadedError and _NoAnswerError."""
        if self._line is not None:
            return
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [b"r"], [theirs.fileno()])
            self._process = int.from_bytes(_read(self._control, 4) or b"", "big")
        except OSError:
            self._process = 0
        theirs.close()
        if not self._process:
            raise _NoAnswerError("it ended what it would be run again with")
        self._line = ours
        loaded = self._ask(self._job)
        if loaded.get("problem") is not None:
            raise _NotLoadedError(str(loaded["problem"])[:_TEXT_CHARS])

    def call(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """Return the answer of the runner: ``value``, or ``raised`` and ``text``."""
        self.start()
        self._calls += 1
        answer = self._ask({"id": self._calls, "args": args, "kwargs": kwargs})
        if answer.get("id") != self._calls:
            raise _NoAnswerError("it answered what it was not asked")
        return {"value": answer["value"]} if "value" in answer else _raised(answer)

    def _ask(self, message: object) -> dict[str, Any]:
        assert self._line is not None
        try:
            _send(self._line, message)
            answer = _receive(self._line)
        except OSError:
            answer = None
        if not isinstance(answer, dict):
            self.stop()
            raise _NoAnswerError("its process ended, or answered with nonsense")
        return answer

    def stop(self) -> None:
        """End the runner, if there is one."""
        if self._line is not None:
            self._line.close()
            self._line = None
            if self._process > 1:
                with contextlib.suppress(OSError):
                    os.killpg(self._process, signal.SIGKILL)


def _raised(answer: dict[str, Any]) -> dict[str, Any]:
    """What a runner says of an exception, in a form that can be relied on."""
    names = answer.get("raised")
    return {
        "raised": [str(name)[:_TEXT_CHARS] for name in names[:20]] if isinstance(names, list) else [],
        "text": str(answer.get("text"))[:_TEXT_CHARS],
    }


def _hide() -> None:
    """Keep other processes of the same user from reading this one's memory and open files."""
    _set_flag(_PR_SET_DUMPABLE, 0)


def _set_flag(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _overrun(_signal: int, _frame: object) -> None:
    raise _OverrunError


def _judge(submission: _Submission, test: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Run one test within its time; return what to report."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
            if "code" in test:
                return _run_code(submission, test)
            return submission.call(test["args"], test["kwargs"])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _OverrunError:
        submission.stop()
        return {"status": "timeout", "text": f"more than {timeout_s:g} s"}
    except _NotLoadedError as error:
        return {"status": "not_loaded", "text": str(error)}
    except _UnsendableError as error:
        return {"status": "unusable", "text": str(error)}
    except _NoAnswerError as error:
        submission.stop()
        return {"status": "error", "text": str(error)}


def _run_code(submission: _Submission, test: dict[str, Any]) -> dict[str, Any]:
    """Run a test that is code, with the submission behind two names."""
    submission.start()
    function = _stand_in(submission)
    names: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(compile(test["setup"], _TEST, "exec", dont_inherit=True), names)
        names.update({"candidate": function, test["entry_point"]: function})
        exec(compile(test["code"], _TEST, "exec", dont_inherit=True), names)
    except AssertionError as error:
        return {"status": "failed", "text": str(error)[:_TEXT_CHARS] or _where(error, test["code"])}
    except Exception as error:  # noqa: BLE001  # what the submission raised, or the test on its answer
        return {"status": "error", "text": _describe(error)}
    return {"status": "passed", "text": ""}


def _where(error: BaseException, source: str) -> str:
    """Return the line of a test that failed."""
    number, step = 0, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == _TEST:
            number = step.tb_lineno
        step = step.tb_next
    lines = source.splitlines()
    return lines[number - 1].strip()[:_TEXT_CHARS] if 0 < number <= len(lines) else "an assertion failed"


def _stand_in(submission: _Submission) -> Callable[..., Any]:
    def candidate(*args: object, **kwargs: object) -> Any:
        try:
            call = encode(args), encode(kwargs)
        except (TypeError, ValueError) as error:
            raise _UnsendableError(str(error)) from error
        answer = submission.call(*call)
        if "value" not in answer:
            raise _as_exception(answer)
        try:
            return decode(answer["value"])
        except ValueError as error:
            raise _NoAnswerError(str(error)) from error

    return candidate


def _as_exception(answer: dict[str, Any]) -> Exception:
    text: str = answer["text"]
    for name in answer["raised"]:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            with contextlib.suppress(TypeError):
                return kind(text)
    return RuntimeError(text)


def main() -> None:
    """Read a job from stdin, run its tests, and write a line for each behind the nonce."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        _leave_judge(theirs)
        _spawn_runners(theirs)
    theirs.close()
    _hide()
    job = json.loads(sys.stdin.buffer.read())
    results = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # tests may print

    def report(message: object) -> None:
        results.write(f"{job['nonce']} {json.dumps(message)}\n")
        results.flush()

    signal.signal(signal.SIGALRM, _overrun)
    report("ready")
    submission = _Submission(ours, job)
    for test in job["tests"]:
        said = _judge(submission, test, job["timeout_s"])
        report(said)
        if said.get("status") in ("timeout", "not_loaded", "unusable"):
            break
    submission.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
