import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.torch import load_file, save_file

from anybatch.storage.state_tree import join, split

DTYPES = st.sampled_from(
    [np.bool_, np.uint8, np.int8, np.uint32, np.int32, np.int64, np.float16, np.float32, np.float64]
)
ARRAYS = npst.arrays(DTYPES, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
VALUES = st.none() | st.booleans() | st.integers(-(2**130), 2**130) | st.floats() | st.text()
KEYS = (
    st.text()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from(["$tensor", "$dict", "__metadata__", "a/b", "a"])
)
TREES = st.recursive(
    VALUES | ARRAYS | ARRAYS.map(torch.from_numpy),
    lambda node: st.lists(node, max_size=3) | st.dictionaries(KEYS, node, max_size=3) | st.tuples(node, node),
    max_leaves=12,
)


def through_files(tree: dict, folder: Path) -> dict:
    tensors, plain = split(tree)
    save_file(tensors, folder / "tensors")
    text = json.dumps(plain, allow_nan=False)
    return join(load_file(folder / "tensors"), json.loads(text))


def same(left: object, right: object) -> bool:
    """Equal in type and in every bit, NaN included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return same(left.detach().numpy(), right.detach().numpy())
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or left.hex() == right.hex()
    return left == right


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_any_tree_comes_back_exactly(tmp_path: Path, tree: dict):
    assert same(through_files(tree, tmp_path), tree)


def test_values_that_json_has_no_word_for_come_back(tmp_path: Path):
    tree = {
        "nan": math.nan,
        "inf": [math.inf, -math.inf, -0.0],
        "int": [2**63, -(2**127), 2**63 - 1],
        "betas": (0.9, 0.999),
        "steps": {0: torch.tensor(3.0), 1: {}},
        "$float": "a key that looks like ours",
        "empty": [[], {}, ()],
    }
    assert same(through_files(tree, tmp_path), tree)


def test_equal_paths_do_not_overwrite_each_other(tmp_path: Path):
    tree = {"a/b": torch.tensor(1), "a": {"b": torch.tensor(2), 1: torch.tensor(3), "1": torch.tensor(4)}}
    assert same(through_files(tree, tmp_path), tree)


def test_shared_strided_and_channels_last_tensors_are_saved_as_their_own_copies(tmp_path: Path):
    weight = torch.nn.Parameter(torch.randn(7, 3, 5, 5).to(memory_format=torch.channels_last))
    base = torch.arange(11)
    tree = {
        "weight": weight,
        "again": weight,
        "every_other": base[::2],
        "base": base,
        "row": np.arange(6)[::-2],
    }
    back = through_files(tree, tmp_path)
    assert torch.equal(back["weight"], weight) and torch.equal(back["again"], weight)
    assert back["every_other"].tolist() == [0, 2, 4, 6, 8, 10]
    assert back["row"].tolist() == [5, 3, 1]


def test_a_split_does_not_follow_later_changes():
    weight, array = torch.zeros(3), np.zeros(3)
    tensors, plain = split({"weight": weight, "array": array})
    weight += 1
    array += 1
    back = join(tensors, plain)
    assert back["weight"].tolist() == back["array"].tolist() == [0, 0, 0]


def test_optimizer_and_generator_states_survive(tmp_path: Path):
    network = torch.nn.Linear(5, 3)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(7, 5)).sum().backward()
    optimizer.step()
    tree = {"adam": optimizer.state_dict(), "numpy": np.random.default_rng(1).bit_generator.state}
    back = through_files(tree, tmp_path)
    assert same(back, tree)
    optimizer.load_state_dict(back["adam"])
    np.random.default_rng(2).bit_generator.state = back["numpy"]


@pytest.mark.parametrize(
    "leaf", [np.float64(1.0), np.int64(1), {1}, object(), np.array(["text"]), 1j, {(1, 2): 3}, {True: 1}]
)
def test_what_would_come_back_as_something_else_is_refused_with_its_place(leaf: object):
    with pytest.raises(TypeError, match="outer/inner"):
        split({"outer": {"inner": leaf}})


def test_plain_values_without_their_tensors_are_refused():
    _, plain = split({"weight": torch.ones(3)})
    with pytest.raises(KeyError):
        join({}, plain)
