"""What fits a fresh state, and how what does not is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from anybatch.errors import CheckpointError
from anybatch.storage.state_fit import refusing_misfits, validate_fit

LIKE: dict[str, Any] = {
    "count": 3,
    "share": 0.5,
    "done": False,
    "weights": {"a": torch.zeros(2, 3), "b": torch.zeros(4, dtype=torch.uint8)},
    "envs": np.zeros((3, 2)),
    "moments": [0.0, 0.0],
    "waiting": [],
    "absent": None,
    "optimizer": {},
}


def saved(**changes: Any) -> dict[str, Any]:
    return LIKE | changes


def fits(tree: object, **rules: bool) -> None:
    validate_fit(tree, LIKE, "state", **rules)


def test_a_state_fits_itself():
    fits(saved())
    fits(saved(count=7, share=2, moments=[1.0, -1.0]))  # a whole number is a number
    fits(saved(waiting=[1, 2.5, [3, 4]]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"count": 1.5}, "state/count is of type float, not of type int"),
        ({"count": True}, "state/count is of type bool, not of type int"),
        ({"count": -1}, "state/count is out of range: -1"),
        ({"count": None}, "state/count is missing"),
        ({"share": float("inf")}, "state/share is inf, which is not a finite number"),
        ({"done": 1}, "state/done is of type int, not of type bool"),
        ({"weights": 3}, "state/weights is of type int, not a table of parts"),
        ({"weights": {"a": LIKE["weights"]["a"]}}, "state/weights/b is missing"),
        ({"weights": LIKE["weights"] | {"c": 1}}, "state/weights/c is not known here"),
        ({"envs": np.zeros((3, 5))}, "state/envs is (3, 5) in the checkpoint and (3, 2) here"),
        (
            {"envs": np.zeros((3, 2), np.float32)},
            "state/envs is of float32 in the checkpoint and of float64 here",
        ),
        ({"envs": torch.zeros(3, 2)}, "state/envs is of type Tensor, not an array"),
        ({"envs": np.full((3, 2), np.nan)}, "state/envs has non-finite values"),
        ({"moments": [1.0]}, "state/moments has 1 entries, not 2"),
        ({"moments": 1.0}, "state/moments is of type float, not a list"),
        ({"waiting": ["text"]}, "state/waiting/0 is of type str, not of type float"),
        ({"waiting": [[]]}, "state/waiting/0 is of type list, not of type float"),
        ({"absent": 3}, "state/absent is not known here"),
        ({"optimizer": {"step": 1}}, "state/optimizer/step is not known here"),
    ],
)
def test_the_first_difference_is_named(change: dict[str, Any], sentence: str):
    with pytest.raises(CheckpointError) as error:
        fits(saved(**change))
    assert str(error.value) == sentence


def test_parts_may_be_lacking_where_that_is_allowed():
    fits(saved(weights=None, envs=None, absent={"what": "ever"}, optimizer={"step": 1}), may_lack=True)
    fits(saved(weights={}, optimizer={"step": torch.zeros(())}), may_lack=True)
    with pytest.raises(CheckpointError, match="state/optimizer/step is of type str"):
        fits(saved(optimizer={"step": "text"}), may_lack=True)
    with pytest.raises(CheckpointError, match="state/count is missing"):
        fits(saved(count=None), may_lack=True)


def test_the_number_of_envs_may_differ_where_that_is_allowed():
    fits(saved(envs=np.full((7, 2), np.inf)), any_length=True, finite=False)
    with pytest.raises(CheckpointError, match=r"state/envs is \(7, 5\) in the checkpoint"):
        fits(saved(envs=np.zeros((7, 5))), any_length=True)


@pytest.mark.parametrize(
    "error", [KeyError("part"), TypeError("two\nlines"), RuntimeError("torch"), IndexError()]
)
def test_what_fails_while_restoring_names_the_checkpoint(error: Exception):
    with pytest.raises(CheckpointError) as refusal, refusing_misfits(Path("step_7")):
        raise error
    assert str(refusal.value).startswith("the checkpoint step_7 cannot be used: ")
    assert "\n" not in str(refusal.value)
