"""Samplers: whole copies of the policy that draw actions between publications."""

from hyperrl.train.samplers.torch_sampler import TorchSampler

__all__ = ["TorchSampler"]
