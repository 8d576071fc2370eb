"""DeepSeek Harness, unmodified: one ``dsh`` for many episodes, over the protocol of its SDK."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hyperrl.agents.base import EpisodeContext
from hyperrl.agents.faults import EpisodeError
from hyperrl.envs import TextEnv
from hyperrl.errors import ConfigError
from hyperrl.harness.adapters.deepseek import (
    KNOWN,
    DeepSeekSettings,
    environment,
    patch_text,
)
from hyperrl.harness.answers import closing_time, hand_in, hand_in_cut, opening
from hyperrl.harness.cli_program import CliSettings
from hyperrl.harness.gateway import Gateway, GatewaySession, SharedAddress
from hyperrl.harness.json_rpc import JsonRpc
from hyperrl.harness.launching import PROVIDER, Launch
from hyperrl.harness.shared_process import SharedProcess, SharedProcesses

__all__ = ["SharedDeepSeekProgram"]

MODEL = "main"
SESSIONS = 64
ENDS = ("completed", "max-tokens")
"""How a turn ends that was no failure."""


@dataclass(frozen=True, slots=True)
class _Adapter:
    """Starts the profile ``sdk`` with the patch of the profile ``headless``, over Responses.

    That format names the session in a header, which chat.completions does not.
    """

    settings: DeepSeekSettings
    binary: str
    name: str

    def launch(self, home: Path, address: SharedAddress) -> Launch:
        patch = home / "hyperrl.patch.yml"
        return Launch(
            words=(self.binary, "--profile", "sdk", "--patch", str(patch)),
            env=environment(self.settings, home, address.api_key),
            files={
                patch.name: patch_text(self.settings, address.base_url, api="openai-responses", model=MODEL)
            },
        )

    async def greet(self, rpc: JsonRpc, home: Path) -> None:
        params = {"cwd": str(home / "sessions"), "provider": PROVIDER, "model": MODEL}
        await rpc.call("initialize", {**params, "maxTokens": self.settings.answer_tokens})


class SharedDeepSeekProgram:
    """DeepSeek Harness as one process for many episodes; ``env.program: deepseek_shared`` in a config.

    For environments with neither tools nor a workspace nor a sandbox of their own: the sessions of a
    process share what it is told when it starts. It is started by the first episode and ends with the
    rollout. Where it dies, its episodes fail, and the next one gets another.

    Args:
        deepseek: how it is run.
        settings: ``timeout_s`` and ``closing_s`` are limits of a session, the rest is of the process.
        sessions: how many episodes a process plays before another takes its place: it forgets none.

    Raises:
        ConfigError: ``sessions`` is below 1.
    """

    name = "deepseek_shared"
    takes_tools = False
    known = KNOWN

    def __init__(
        self,
        deepseek: DeepSeekSettings | None = None,
        settings: CliSettings | None = None,
        *,
        sessions: int = SESSIONS,
    ) -> None:
        if sessions < 1:
            raise ConfigError(f"a process plays at least one session, got sessions={sessions}")
        self.deepseek = deepseek or DeepSeekSettings()
        self.settings = settings or CliSettings()
        self._binary = ""
        self._processes = SharedProcesses(homes=self.settings.homes, sessions=sessions)

    @property
    def given(self) -> str:
        """Its path, if one was given."""
        return self.deepseek.binary

    def trial(self, binary: str) -> SharedDeepSeekProgram:
        """Return the program at a path, with these settings, taking any version: for the self-test."""
        return SharedDeepSeekProgram(replace(self.deepseek, binary=binary, any_version=True))

    async def check(self) -> None:
        """Find the program, before a run that would be in vain without it.

        Raises:
            ConfigError: it is not installed, or of a version that is not known to work.
        """
        if not self._binary:
            given = self.deepseek
            self._binary = await KNOWN.check(given.binary, any_version=given.any_version, trial=self.trial)

    def check_env(self, env: TextEnv) -> None:
        """Refuse an environment that needs something of its own in every session.

        Raises:
            ConfigError: it has tools, a workspace or a sandbox.
        """
        own = {"tools": env.tools, "a workspace": env.workspace, "a sandbox": env.sandbox}
        found = [what for what, there in own.items() if there]
        if found:
            raise ConfigError(
                f"the environment has {' and '.join(found)} of its own, which the sessions of one process"
                " cannot be given; use env.program: deepseek, one process an episode"
            )

    async def run(self, ctx: EpisodeContext) -> None:
        """Play the episode in a session of the process.

        Raises:
            ConfigError: the program, or the environment, cannot be used so.
            EpisodeError: as for :class:`~hyperrl.harness.cli_program.CliProgram`, or the program ended its
                turn with an error (``program_error``).
        """
        self.check_env(ctx.env)
        await self.check()
        text = "\n\n".join(filter(None, opening(ctx)))
        host = ctx.host
        if not isinstance(host, Gateway):
            raise ConfigError(f"{self.name} needs the gateway of hyperrl, got {type(host).__name__}")
        adapter = _Adapter(self.deepseek, self._binary, self.name)
        async with self._processes.session(adapter, host) as process:
            session = _Session(process)
            try:
                reached = await self._play(ctx, session, text)
            finally:
                session.close()
        if ctx.terminated or await hand_in_cut(ctx):
            return
        if not reached or session.failure:
            raise EpisodeError("program_error", session.failure or "the episode's limits ended the session")
        needed = self.settings.needs_answer
        await hand_in(ctx, session.answer, name=self.name, needed=needed, said="")

    async def _play(self, ctx: EpisodeContext, session: _Session, text: str) -> bool:
        """Have the session play; return whether it came to an end before the limits of the episode did."""
        served = ctx.served()
        assert isinstance(served, GatewaySession)  # since the host is a gateway
        session.process.address.bind(session.thread, served)
        playing = asyncio.create_task(session.play(text))
        closing = asyncio.create_task(closing_time(ctx, self.settings.closing_s))
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await asyncio.wait([playing, closing], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            text = f"{self.name} did not end within {self.settings.timeout_s:g} s"
            raise EpisodeError("program_timeout", text) from error
        finally:
            ended = playing.done()
            playing.cancel()
            closing.cancel()
            await asyncio.wait([playing, closing])
        if ended:
            playing.result()
        return ended


class _Session:
    """One session of a process, and what is heard of it.

    Attributes:
        process: where it is.
        thread: its name there, and in the header of its requests.
        answer: the text of its last message.
        failure: why its turn ended before its end; empty if it did not.
    """

    def __init__(self, process: SharedProcess) -> None:
        self.process = process
        self.thread = f"hyperrl-{secrets.token_hex(8)}"
        self.answer = ""
        self.failure = ""
        self._workspace = process.workspace / self.thread

    async def play(self, text: str) -> None:
        """Hand in a prompt and wait for the end of what it leads to.

        Raises:
            EpisodeError: the process has ended, or answers with an error.
        """
        named = {"sessionId": self.thread}
        with self.process.listening(self.thread, self._hear):
            await self.process.started()
            self._workspace.mkdir()
            await self.process.call("session/working-directory/set", {**named, "path": str(self._workspace)})
            block = {"type": "text", "text": text}
            await self.process.call("session/prompt", {**named, "contentBlocks": [block]})
            await self.process.call("session/wait", named)

    def close(self) -> None:
        """Remove what it has left."""
        shutil.rmtree(self._workspace, ignore_errors=True)

    def _hear(self, event: Mapping[str, Any]) -> None:
        data = _object(event.get("data"))
        if event.get("type") == "assistant/message":
            message = _object(data.get("message")) or data
            texts = [
                str(block.get("text") or "") for block in message.get("content") or () if _is_text(block)
            ]
            self.answer = "".join(texts)
        elif event.get("type") == "turn/end":
            reason = _object(data.get("reason"))
            kind, error = reason.get("kind"), _object(reason.get("error"))
            said = error.get("message", "no reason is given")
            self.failure = "" if kind in ENDS else f"its turn ended with {kind}: {said}"


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"
