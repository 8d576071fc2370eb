"""Training: models, samplers, publication, algorithms and the trainer. Needs ``hyperrl[train]``."""

__all__: list[str] = []
