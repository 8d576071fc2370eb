"""A loss and an advantage of one's own, named in a config as `own_algorithm:sapo` and `own_algorithm:opo`."""

import numpy as np
import torch

from hyperrl.train.advantages import Advantages
from hyperrl.train.losses import TokenLosses


def sapo(batch, config):
    """SAPO (Gao et al. 2025, arXiv:2511.20347): a soft gate around the ratio in place of clipping."""
    tau = torch.where(batch.advantages > 0, config.options["tau_pos"], config.options["tau_neg"])
    return TokenLosses(-batch.advantages * torch.sigmoid(tau * (batch.log_ratio.exp() - 1)) * 4 / tau)


def opo(batch, config):
    """OPO (Hao et al. 2025, arXiv:2505.23585): the baseline is the group's mean, weighted by length."""
    length = np.bincount(batch.episode, minlength=len(batch.rewards))
    total, weighted = np.bincount(batch.groups, length), np.bincount(batch.groups, length * batch.rewards)
    baseline = weighted / np.maximum(total, 1)
    return Advantages(advantages=batch.spread(batch.rewards - baseline[batch.groups]))
