"""Random batches in both shapes: padded [B, T] with a mask, and our flat loss tokens."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from hyperrl.train.advantages import AdvantageInput
from hyperrl.train.losses import LOSSES, LossInput, token_weights


def need(module: str):
    """Import an oracle, or skip; fail where continuous integration demands it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if os.environ.get("HYPERRL_REQUIRE_ASSETS") == "1":
            raise
        pytest.skip(f"{error}; `make venv` installs what these tests compare with", allow_module_level=True)


@dataclass(frozen=True)
class Case:
    """Padded arrays; tools' text stands between action tokens, where the mask is 0."""

    mask: torch.Tensor
    rewards: torch.Tensor
    groups: np.ndarray
    logprobs: torch.Tensor
    old: torch.Tensor
    behavior: torch.Tensor
    reference: torch.Tensor
    values: torch.Tensor
    advantages: torch.Tensor

    @property
    def chosen(self) -> np.ndarray:
        return self.mask.bool().numpy()

    @property
    def episode(self) -> np.ndarray:
        return self.chosen.nonzero()[0]

    @property
    def token_rewards(self) -> torch.Tensor:
        """The reward of each row at its last action token."""
        placed = torch.zeros_like(self.mask)
        last = self.mask.shape[1] - 1 - self.mask.flip(1).argmax(1)
        placed[torch.arange(len(last)), last] = self.rewards
        return placed

    def flat(self, values: torch.Tensor) -> np.ndarray:
        return values.detach().numpy()[self.chosen].astype(np.float64)

    def padded(self, flat: np.ndarray) -> torch.Tensor:
        result = torch.zeros_like(self.mask)
        result[self.mask.bool()] = torch.from_numpy(np.asarray(flat)).to(result)
        return result

    def input(self, *, values: bool = False) -> AdvantageInput:
        return AdvantageInput(
            rewards=self.rewards.double().numpy(),
            groups=self.groups,
            episode=self.episode,
            token_rewards=self.flat(self.token_rewards),
            values=self.flat(self.values) if values else None,
        )

    def loss(self, config, aggregation: str, horizon: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Our loss of the batch and its gradient with respect to the padded logprobs."""
        logprobs = self.logprobs.clone().requires_grad_()
        where = self.mask.bool()
        found = LOSSES.find(config.loss)(
            LossInput(
                logprobs=logprobs[where],
                old_logprobs=self.old[where],
                advantages=self.advantages[where],
                sequence=torch.from_numpy(self.episode),
            ),
            config,
        )
        groups = self.groups[self.episode]
        weights = torch.from_numpy(token_weights(self.episode, aggregation, groups=groups, horizon=horizon))
        loss = (weights.to(logprobs) * found.losses).sum()
        loss.backward()
        return loss.detach(), logprobs.grad


def make_case(seed: int, *, rows: int = 12, width: int = 9, group_size: int = 4, move: float = 0.3) -> Case:
    """Random rewards, logprobs and masks with gaps; every row has an action token."""
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, width)) < 0.6
    mask[np.arange(rows), rng.integers(0, width, rows)] = True
    old = -np.abs(rng.normal(1.0, 0.7, (rows, width)))

    def near(scale: float) -> torch.Tensor:
        return torch.from_numpy(np.minimum(old + rng.normal(0, scale, old.shape), 0.0))

    return Case(
        mask=torch.from_numpy(mask.astype(np.float64)),
        rewards=torch.from_numpy(rng.integers(0, 4, rows).astype(np.float64)),
        groups=np.repeat(np.arange(rows // group_size), group_size),
        logprobs=near(move),
        old=torch.from_numpy(old),
        behavior=near(0.4),
        reference=near(0.5),
        values=torch.from_numpy(rng.normal(0, 1, old.shape)),
        advantages=torch.from_numpy(rng.normal(0, 1, (rows, 1)) * np.ones_like(old)),
    )
