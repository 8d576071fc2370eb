from __future__ import annotations

import copy
import pickle

import gymnasium
import pytest
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import batch_space, create_shared_memory
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.envs import Unicode

any_text = st.text(st.characters(exclude_categories=()))


@given(any_text)
def test_every_text_is_a_member(text):
    assert text in Unicode()


def test_length_and_type_bound_membership():
    space = Unicode(max_length=3)
    assert "abc" in space
    assert "" in space
    assert "abcd" not in space
    assert b"abc" not in space
    assert 3 not in space
    assert None not in space


def test_samples_are_odd_members_that_can_be_encoded():
    space = Unicode(seed=1)
    samples = [space.sample() for _ in range(300)]
    assert all(sample in space for sample in samples)
    assert "" in samples
    text = "".join(samples)
    text.encode("utf-8")
    assert any(ord(c) > 0xFFFF for c in text)
    assert any(ord(c) < 0x20 for c in text)
    assert len(Unicode(max_length=2, seed=0).sample()) <= 2


def test_samples_depend_on_the_seed_alone():
    assert [Unicode(seed=5).sample() for _ in range(3)] == [Unicode(seed=5).sample() for _ in range(3)]
    assert [Unicode(seed=5).sample()] != [Unicode(seed=6).sample()]


def test_a_mask_is_refused():
    with pytest.raises(ValueError, match="no mask"):
        Unicode().sample(mask=(None, None))


def test_it_survives_pickle_copy_and_batching():
    space = Unicode(max_length=7)
    assert pickle.loads(pickle.dumps(space)) == space == copy.deepcopy(space)
    assert space != Unicode(max_length=8)
    assert space != gymnasium.spaces.Text(7, min_length=0)
    assert isinstance(space, gymnasium.spaces.Text)
    assert repr(space) == "Unicode(max_length=7)"
    assert not space.is_np_flattenable
    assert ("a", "b") in batch_space(space, 2)


def test_shared_memory_is_refused_with_what_to_do():
    with pytest.raises(CustomSpaceError, match="shared_memory=False"):
        create_shared_memory(Unicode(), n=2)
