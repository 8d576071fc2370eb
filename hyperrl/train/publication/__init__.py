"""Making a policy version live at the samplers: listed, staged, verified, then committed at once."""

from hyperrl.train.publication.buckets import make_buckets
from hyperrl.train.publication.manifest import Manifest, TensorEntry, make_manifest, tensor_digest
from hyperrl.train.publication.publisher import Publisher
from hyperrl.train.publication.staging import StagedWeights

__all__ = [
    "Manifest",
    "Publisher",
    "StagedWeights",
    "TensorEntry",
    "make_buckets",
    "make_manifest",
    "tensor_digest",
]
