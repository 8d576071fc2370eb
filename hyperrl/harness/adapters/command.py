"""Any command as an agent program: templates say how to start it and where its answer is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hyperrl.errors import ConfigError, nearest
from hyperrl.harness.cli_program import Launch, Place
from hyperrl.harness.process import Ended

__all__ = ["CommandAdapter"]

PLACEHOLDERS = (
    "home",
    "workspace",
    "base_url",
    "api_key",
    "model",
    "system",
    "prompt",
    "mcp_url",
    "answer_file",
)
_BRACES = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAdapter:
    """How a command is started, as texts with placeholders.

    ``{base_url}``, ``{api_key}``, ``{model}``, ``{prompt}``, ``{system}``, ``{mcp_url}``, ``{workspace}``,
    ``{home}`` and ``{answer_file}`` are replaced. In ``files`` other braces stay as they are.

    Attributes:
        name: what trajectories record.
        words: the program, looked up on the PATH, and its arguments.
        env: what it finds in its environment beside PATH, LANG, HOME and TMPDIR.
        stdin: what it reads. A prompt among the arguments may have 128 KB at most.
        files: what to write below ``{home}`` first, by path.
        answer_in: where its final answer is: all of its standard output, or the file ``{answer_file}``.
        install: what to run where the program is missing.

    Raises:
        ConfigError: there is no such placeholder, or no command.
    """

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str = "{prompt}"
    files: Mapping[str, str] = field(default_factory=dict)
    answer_in: Literal["stdout", "file"] = "stdout"
    install: str = ""

    def __post_init__(self) -> None:
        if not self.words:
            raise ConfigError(f"the program {self.name!r} has no words to run")
        for text in (*self.words, *self.env.values(), self.stdin):
            for found in _BRACES.findall(text):
                if found not in PLACEHOLDERS:
                    raise ConfigError(
                        f"the program {self.name!r}: there is no placeholder {{{found}}} in {text!r};"
                        f" there are {', '.join(PLACEHOLDERS)}.{nearest(found, PLACEHOLDERS)}"
                    )

    async def check(self) -> None:
        self._program()

    def launch(self, place: Place) -> Launch:
        values = {name: str(getattr(place, name, "")) for name in PLACEHOLDERS}
        values["answer_file"] = str(_answer_file(place))

        def fill(text: str) -> str:
            return _BRACES.sub(lambda found: values.get(found[1], found[0]), text)

        return Launch(
            words=(self._program(), *map(fill, self.words[1:])),
            env={name: fill(text) for name, text in self.env.items()},
            stdin=fill(self.stdin),
            files={name: fill(text) for name, text in self.files.items()},
        )

    def answer(self, place: Place, ended: Ended) -> str | None:
        if self.answer_in == "stdout":
            return ended.stdout
        path = _answer_file(place)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None

    def _program(self) -> str:
        found = shutil.which(self.words[0])
        if found is None:
            how = f" Install it: {self.install}" if self.install else ""
            raise ConfigError(f"{self.name}: there is no program {self.words[0]!r} on the PATH.{how}")
        return str(Path(found).absolute())


def _answer_file(place: Place) -> Path:
    return place.home / "answer.txt"
