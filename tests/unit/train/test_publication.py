"""Publication: manifests, buckets, and one verdict for all samplers whatever fails."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.errors import ConfigError, PublicationError
from hyperrl.train.models import load_model, make_tiny_model, named_weights
from hyperrl.train.publication import (
    Manifest,
    Publisher,
    TensorEntry,
    make_buckets,
    make_manifest,
    tensor_digest,
)
from hyperrl.train.samplers import TorchSampler

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    shape = {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 48, "context": 64}
    return make_tiny_model(tmp_path_factory.mktemp("publication") / "tiny", seed=5, **shape)


@pytest.fixture(scope="module")
def old(model_dir):
    return named_weights(load_model(model_dir, dtype=torch.float32, device=CPU))


@pytest.fixture(scope="module")
def new(old):
    return {name: tensor + 0.25 for name, tensor in old.items()}


@pytest.fixture
def make_targets(model_dir, old):
    made = []

    def make(*classes):
        targets = [cls(model_dir) for cls in classes]
        made.extend(targets)
        Publisher(targets).publish(0, old)
        return targets

    yield make
    for target in made:
        target.close()


def served_bytes(target):
    return {name: tensor_digest(tensor) for name, tensor in named_weights(target._model).items()}


class FailsAt(TorchSampler):
    """A sampler that fails at one step of the publication of version 1."""

    step = ""

    def _fail(self, step):
        if step == self.step and self.policy_version == 0:
            raise RuntimeError(f"{step} failed")

    def begin(self, manifest):
        self._fail("begin")
        super().begin(manifest)

    def stage(self, bucket):
        super().stage(bucket)
        self._fail("stage")

    def verify(self):
        self._fail("verify")
        super().verify()

    def pause(self):
        self._fail("pause")
        super().pause()

    def commit(self):
        self._fail("commit")
        super().commit()


def failing(step):
    return type(f"FailsAt{step.title()}", (FailsAt,), {"step": step})


class Corrupts(TorchSampler):
    """A sampler whose transport flips one bit of the last bucket of version 1."""

    def stage(self, bucket):
        if self.policy_version == 0 and "model.norm.weight" in bucket:
            damaged = bucket["model.norm.weight"].clone()
            damaged.view(torch.int32)[0] ^= 1
            bucket = {**bucket, "model.norm.weight": damaged}
        super().stage(bucket)


class Loses(TorchSampler):
    """A sampler that never receives one tensor."""

    def stage(self, bucket):
        kept = {name: tensor for name, tensor in bucket.items() if name != "model.norm.weight"}
        super().stage(bucket if self.policy_version < 0 else kept)


def test_a_publication_reaches_all_targets(make_targets, new):
    targets = make_targets(TorchSampler, TorchSampler)
    manifest = Publisher(targets, bucket_bytes=4096).publish(1, new)
    assert [t.policy_version for t in targets] == [1, 1]
    assert [t.digest for t in targets] == [manifest.digest] * 2
    assert served_bytes(targets[0]) == {name: tensor_digest(tensor) for name, tensor in new.items()}


@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("step", ["begin", "stage", "verify", "pause"])
def test_a_fault_before_the_commit_leaves_every_byte_of_the_version_before(make_targets, new, step, order):
    classes = [TorchSampler, failing(step)]
    targets = make_targets(*(classes if order == "last" else reversed(classes)))
    before = [served_bytes(target) for target in targets]
    with pytest.raises(PublicationError, match=rf"{step} failed\. Version 0 is still served"):
        Publisher(targets, bucket_bytes=4096).publish(1, new)
    assert [served_bytes(target) for target in targets] == before
    assert [t.policy_version for t in targets] == [0, 0]
    for target in targets:
        target.step = ""
    Publisher(targets).publish(2, new)
    assert [t.policy_version for t in targets] == [2, 2]


@pytest.mark.parametrize(
    ("target_class", "message"),
    [(Corrupts, "'model.norm.weight' arrived damaged"), (Loses, "1 tensors were never staged")],
)
def test_verify_finds_what_went_wrong_on_the_way(make_targets, new, target_class, message):
    targets = make_targets(TorchSampler, target_class)
    before = [served_bytes(target) for target in targets]
    with pytest.raises(PublicationError, match=message):
        Publisher(targets).publish(1, new)
    assert [served_bytes(target) for target in targets] == before


def test_a_failing_commit_says_that_sampling_stays_closed(make_targets, new):
    targets = make_targets(TorchSampler, failing("commit"))
    with pytest.raises(PublicationError, match=r"now have version 0, 1 and stay paused"):
        Publisher(targets).publish(1, new)
    targets[1].step = ""
    Publisher(targets).publish(2, new)
    assert [t.policy_version for t in targets] == [2, 2]


def test_weights_of_another_model_are_refused(make_targets, old, new):
    (target,) = make_targets(TorchSampler)
    publisher = Publisher([target])
    with pytest.raises(PublicationError, match=r"are not listed \(model\.norm\.weight\)"):
        publisher.publish(1, {name: t for name, t in new.items() if name != "model.norm.weight"})
    with pytest.raises(PublicationError, match=r"does not have \(extra\)"):
        publisher.publish(1, {**new, "extra": torch.zeros(1)})
    with pytest.raises(PublicationError, match=r"listed as float64\[32\].*float32\[32\]"):
        publisher.publish(1, {**new, "model.norm.weight": new["model.norm.weight"].double()})
    with pytest.raises(PublicationError, match="Version 0 is still served"):
        publisher.publish(1, {**new, "model.norm.weight": torch.zeros(31)})
    assert target.digest == make_manifest(0, old).digest


def test_a_tied_tensor_is_published_once(make_targets, model_dir):
    (target,) = make_targets(TorchSampler)
    model = load_model(model_dir, dtype=torch.float32, device=CPU)
    state = model.state_dict()
    assert "lm_head.weight" in state
    manifest = Publisher([target]).publish(1, state)
    assert "lm_head.weight" not in manifest.by_name


def test_the_digest_covers_names_shapes_formats_and_bytes():
    base = make_manifest(3, {"a": torch.zeros(2, 3), "b": torch.ones(4)})
    assert base.digest == make_manifest(7, {"b": torch.ones(4), "a": torch.zeros(2, 3)}).digest
    others = [
        {"a": torch.zeros(3, 2), "b": torch.ones(4)},
        {"a": torch.zeros(2, 3), "c": torch.ones(4)},
        {"a": torch.zeros(2, 3), "b": torch.full((4,), 2.0)},
        {"a": torch.zeros(2, 3), "b": torch.ones(4, dtype=torch.int32)},
        {"a": torch.zeros(2, 3)},
    ]
    assert len({base.digest, *(make_manifest(3, other).digest for other in others)}) == 6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_digests_do_not_depend_on_strides(dtype):
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    assert tensor_digest(tensor) == tensor_digest(tensor.t().contiguous().t())
    assert tensor_digest(tensor) != tensor_digest(tensor.t())
    assert tensor_digest(torch.tensor(1.0)) == tensor_digest(torch.tensor([1.0]))


def test_a_manifest_is_checked():
    entry = TensorEntry(name="a", shape=(2, 3), dtype="bfloat16", digest="0")
    assert entry.size_bytes == 12
    with pytest.raises(PublicationError, match="each tensor once"):
        Manifest(version=0, tensors=(entry, entry))
    with pytest.raises(PublicationError, match="start at 0"):
        Manifest(version=-1, tensors=())


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 100))
def test_buckets_keep_the_order_and_the_bound(sizes, bound):
    tensors = {f"t{i}": torch.zeros(size, dtype=torch.uint8) for i, size in enumerate(sizes)}
    buckets = list(make_buckets(tensors, bound))
    assert [name for bucket in buckets for name in bucket] == list(tensors)
    for bucket in buckets:
        assert len(bucket) == 1 or sum(t.numel() for t in bucket.values()) <= bound


def test_a_publisher_needs_targets_and_a_bound(make_targets):
    with pytest.raises(ConfigError, match="at least one target"):
        Publisher([])
    with pytest.raises(ConfigError, match="bucket_bytes"):
        Publisher(make_targets(TorchSampler), bucket_bytes=0)
    with pytest.raises(ConfigError, match="bucket_bytes"):
        list(make_buckets({}, 0))
