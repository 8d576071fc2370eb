"""CPU time and memory that a turn costs beyond the policy and the task: an echo and an instant policy.

    python benchmarks/bench_rollout.py [--json] [--episodes 8000] [--turns 10] [--rounds 3] [--renderer DIR]

All episodes are played at the same time in one process and one event loop, by the code that trains and
evaluates: seeded reset, token-first recording (ids, logprobs, versions), the turn loop, a reward, and a
sealed, checked trajectory of each, all of which are kept. The policy is scripted: it gives the same tokens
every time, and yields to the loop as a sampler does. Everything from the first reset to the last trajectory
counts, user and system time of the whole process.

Beside it in the same run, in turn: the same with the real tokenizer and template of Qwen3
(``--renderer``, by default what scripts/fetch_test_assets.py has fetched), gymnasium's plain loop without
tokens over an environment of its own and over ours, and verifiers, skyrl-gym and aviary where they are
installed. Only hyperrl and verifiers make records of what was played; the others only step. The table gives
medians over rounds. Gymnasium's plain loop also tells how fast and how busy the machine is: it takes 0.15 to
0.5 microseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
from rollout_peers import PEERS, Peer, PeerMissingError

from hyperrl.agents import ByteRenderer, EnvPool, EpisodePlan, PolicySeat, RolloutSettings, play_groups
from hyperrl.agents.rendering import Renderer, load_renderer
from hyperrl.envs import TextEnv, reward
from hyperrl.sampling import Completion, EpisodeKey, SamplingParams
from hyperrl.trajectory import Group, StopReason

SAID = "ok, going on"
GROUP_SIZE = 8
ASSETS = Path(__file__).resolve().parent.parent / ".cache" / "test-assets"


class Echo(TextEnv):
    """Answers with what was said until the last turn."""

    def __init__(self, *, turns: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.turns = turns

    def tasks(self) -> Any:
        return [{"text": "go"}]

    def start(self, task: Any) -> str:
        return str(task["text"])

    def reply(self, action: str, turn: int) -> str | None:
        return None if turn + 1 == self.turns else f"you said {action}"

    @reward
    def spoke(self) -> float:
        return 1.0


class InstantSampler:
    """Always answers the same, but lets the loop go on, as a sampler does.

    Args:
        renderer: encodes the answer, once.
        hold_from: this request of an episode waits until ``released`` is set.
        expected: so many waiting requests set ``all_wait``.
    """

    policy_version = 0

    def __init__(self, renderer: Renderer, *, hold_from: int = -1, expected: int = 0) -> None:
        ids = renderer.encode_action(SAID)
        self._completion = Completion(
            action_ids=ids,
            logprobs=[-0.5] * len(ids),
            policy_versions=[0] * len(ids),
            stop_reason=StopReason.STOP,
        )
        self._hold_from = hold_from
        self._missing = expected
        self.all_wait = asyncio.Event()
        self.released = asyncio.Event()

    async def generate(self, _prompt: Any, _params: Any, *, seed: int, request_id: Any) -> Completion:  # noqa: ARG002
        if request_id.ordinal == self._hold_from:
            self._missing -= 1
            if not self._missing:
                self.all_wait.set()
            await self.released.wait()
        else:
            await asyncio.sleep(0)
        return self._completion


def _plans(episodes: int) -> list[EpisodePlan]:
    keys = [EpisodeKey((0, i // GROUP_SIZE), i % GROUP_SIZE) for i in range(episodes)]
    return [EpisodePlan(key=key, env_id="echo", task=0) for key in keys]


def _settings(renderer: Renderer, sampler: InstantSampler) -> RolloutSettings:
    seat = PolicySeat(sampler=sampler, renderer=renderer, params=SamplingParams(max_tokens=64))
    return RolloutSettings(run_id="benchmark", run_seed=0, seats={"main": seat})


def play(renderer: Renderer, episodes: int, turns: int) -> float:
    """Play once and return CPU seconds."""
    settings, plans = _settings(renderer, InstantSampler(renderer)), _plans(episodes)
    gc.collect()
    with EnvPool(lambda *_: Echo(turns=turns)) as envs:
        started = time.process_time()
        groups: list[Group] = asyncio.run(play_groups(plans, settings, envs=envs))
        spent = time.process_time() - started
    assert sum(len(trajectory.turns) for group in groups for trajectory in group) == episodes * turns
    return spent


def bytes_per_waiting_episode(episodes: int, turns: int) -> int:
    """Return the memory that an episode holds while it waits for its last action, with its environment."""
    renderer = ByteRenderer()

    async def hold() -> int:
        sampler = InstantSampler(renderer, hold_from=turns - 1, expected=episodes)
        settings = _settings(renderer, sampler)
        with EnvPool(lambda *_: Echo(turns=turns)) as envs:
            playing = asyncio.create_task(play_groups(plans, settings, envs=envs))
            await sampler.all_wait.wait()
            held = tracemalloc.get_traced_memory()[0]
            sampler.released.set()
            await playing
        return held

    plans = _plans(episodes)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        return (asyncio.run(hold()) - before) // episodes
    finally:
        tracemalloc.stop()


class PlainEcho(gymnasium.Env[str, str]):
    """The same task written for gymnasium alone, without tokens and records."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._turn = 0
        return "go", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._turn += 1
        if self._turn == self.turns:
            return "", 1.0, True, False, {}
        return f"you said {action}", 0.0, False, False, {}


def step_plainly(make_env: Callable[[int], gymnasium.Env[str, str]], episodes: int, turns: int) -> float:
    """Play with gymnasium's own loop, one episode after the other, and return CPU seconds."""
    env = make_env(turns)
    started = time.process_time()
    for _ in range(episodes):
        env.reset()
        done = False
        while not done:
            _, _, done, _, _ = env.step(SAID)
    return time.process_time() - started


def _find_qwen3() -> Path | None:
    return next((path.parent for path in sorted(ASSETS.glob("qwen3-*/tokenizer.json"))), None)


def _contestants(options: argparse.Namespace) -> tuple[dict[str, Peer], dict[str, str]]:
    """Return what can be measured, and why the rest cannot."""
    byte_renderer = ByteRenderer()
    found: dict[str, Peer] = {"hyperrl": lambda episodes, turns: play(byte_renderer, episodes, turns)}
    skipped: dict[str, str] = {}
    folder = options.renderer or _find_qwen3()
    if folder is None:
        skipped["hyperrl, Qwen3 renderer"] = "run scripts/fetch_test_assets.py qwen3, or give --renderer"
    else:
        renderer = load_renderer(folder)
        found["hyperrl, Qwen3 renderer"] = lambda episodes, turns: play(renderer, episodes, turns)
    found["gymnasium, plain loop"] = lambda episodes, turns: step_plainly(PlainEcho, episodes, turns)
    found["gymnasium, plain loop over TextEnv"] = lambda episodes, turns: step_plainly(
        lambda count: Echo(turns=count), episodes, turns
    )
    for name, make in PEERS.items():
        try:
            found[name] = make()
        except PeerMissingError as error:
            skipped[name] = str(error)
    return found, skipped


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures that ``--json`` prints."""
    found, skipped = _contestants(options)
    spent: dict[str, list[float]] = {name: [] for name in found}
    names = list(found)
    for name in names:  # warm up
        found[name](min(options.episodes, 20), options.turns)
    for number in range(options.rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            slow = name not in ("hyperrl", "gymnasium, plain loop")
            episodes = max(1, options.episodes // 8) if slow else options.episodes
            spent[name].append(found[name](episodes, options.turns) / episodes / options.turns * 1e6)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    ours = medians["hyperrl"]
    return {
        "us_per_turn": round(ours, 1),
        "us_per_turn_qwen3": _rounded(medians.get("hyperrl, Qwen3 renderer")),
        "bytes_per_waiting_episode": bytes_per_waiting_episode(max(1, options.episodes // 8), options.turns),
        "episodes": options.episodes,
        "turns": options.turns,
        "rounds": options.rounds,
        "each": {name: [round(value, 2) for value in values] for name, values in spent.items()},
        "median": {name: round(value, 2) for name, value in medians.items()},
        "ratio_to_hyperrl": {name: round(value / ours, 3) for name, value in medians.items()},
        "skipped": skipped,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _print_table(figures: dict[str, Any]) -> None:
    size = f"{figures['episodes']} concurrent episodes of {figures['turns']} turns"
    print(f"{size}; medians of {figures['rounds']} rounds")
    print(f"{'':36} {'CPU us/turn':>12} {'times ours':>11}")
    for name, median in figures["median"].items():
        print(f"{name:36} {median:12.2f} {figures['ratio_to_hyperrl'][name]:11.3f}")
    for name, why in figures["skipped"].items():
        print(f"{name:36} skipped: {why}")
    print(f"A waiting episode holds {figures['bytes_per_waiting_episode']:,} bytes at its last turn.")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=8000, help="played at the same time")
    parser.add_argument("--turns", type=int, default=10, help="of an episode")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are taken")
    parser.add_argument("--renderer", type=Path, help="a model's folder with tokenizer.json and a template")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    figures = measure(options)
    _print_table(figures)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
