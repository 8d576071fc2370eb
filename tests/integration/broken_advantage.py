"""An estimator of advantages that finds a broken rule, as a user's own might."""

from __future__ import annotations

from hyperrl.errors import InvariantError
from hyperrl.train.advantages import AdvantageInput, Advantages
from hyperrl.train.algorithm_config import AlgorithmConfig

__all__ = ["refuse"]


def refuse(batch: AdvantageInput, _config: AlgorithmConfig) -> Advantages:
    """Refuse every batch."""
    raise InvariantError(f"the rewards {batch.rewards.sum():g} add up to nothing good")
