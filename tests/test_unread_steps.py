"""Gradient steps on a device that the program does not wait for, tried on a CPU.

Within an update such a device is asked nothing: flags on it decide whether a step is taken, and what there
is to know of an iteration is read at its end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from phase_runs import phase_config
from torch.overrides import TorchFunctionMode
from toy_runs import (
    collect,
    in_float64,
    prepare,
    start_in_float64,
    start_pqn_in_float64,
    toy_config,
    toy_pqn_config,
)

from anybatch import machine
from anybatch.algorithms.ppg import loop as ppg
from anybatch.algorithms.ppg import state as ppg_state
from anybatch.algorithms.ppo import loop as ppo
from anybatch.algorithms.pqn import loop as pqn
from anybatch.algorithms.state import TrainState, make_env
from anybatch.errors import TrainingError
from anybatch.learning import minibatch

READS = {"item", "tolist", "cpu", "numpy", "nonzero", "equal", "allclose", "is_nonzero", "masked_select"} | {
    f"__{kind}__" for kind in ("bool", "float", "int", "index", "array", "contains")
}
"""Functions of torch that need the numbers of a tensor before the program can go on."""
PROBLEM: dict[str, Any] = {
    "num_steps": 31,
    "dtype": "float64",
    "compile": "off",
    "env_config": {"max_episode_steps": 5},
}


class CountedReads(TorchFunctionMode):
    """Counts what would make a program wait for its device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.count += getattr(func, "__name__", "") in READS or selects_by_mask(func, args)
        return func(*args, **(kwargs or {}))


def selects_by_mask(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether the result has as many rows as a mask has ones, a number that only the device knows."""
    if getattr(func, "__name__", "") not in ("__getitem__", "__setitem__"):
        return False
    places = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(isinstance(place, torch.Tensor) and place.dtype == torch.bool for place in places)


@dataclass
class Update:
    """An update that is about to be made, and the state that it changes."""

    state: TrainState[Any]
    samples: Any
    make: Callable[[], dict[str, float | None]]

    def spoil(self, number: int = 11) -> None:
        """Let one sample have an advantage or a target that is not a number."""
        column = self.samples.target if hasattr(self.samples, "target") else self.samples.advantage
        column[int(self.samples.valid.flatten().nonzero()[number])] = torch.nan


def of_ppo(minibatches: int, **changes: Any) -> Update:
    update = {"epochs": 2, "minibatches_per_epoch": minibatches}
    config = toy_config(**{**PROBLEM, "update": update, "optimizer": {"max_grad_norm": 0.2}, **changes})
    state = start_in_float64(config)
    samples = prepare(in_float64(collect(config, iterations=2)), state, config)
    return Update(state, samples, lambda: ppo.improve_policy(samples, state, config, 1e-2))


def of_ppo_ewma(minibatches: int) -> Update:
    objective = {"advantage_normalization": "minibatch"}
    return of_ppo(minibatches, proximal={"policy": "ewma"}, objective=objective)


def of_ppo_with_copies(minibatches: int) -> Update:
    return of_ppo(minibatches, proximal={"policy": "periodic", "copy_every": 4}, env="toy:Target")


def of_ppg(minibatches: int) -> Update:
    """A policy iteration, whose value function has epochs of its own."""
    config = phase_config(**PROBLEM, update={"minibatches_per_epoch": minibatches}, phase={"value_epochs": 2})
    state = ppg_state.start(config, make_env(config, env_steps=0), say=lambda _: None)
    data = state.source.collector.collect(state.network, config.num_steps)
    samples = prepare(data, state.policy, config)
    return Update(state, samples, lambda: ppg.policy_iteration(samples, state, config, 1e-2))


def of_pqn(minibatches: int, optimizer: str = "radam") -> Update:
    config = toy_pqn_config(
        **PROBLEM,
        update={"epochs": 5, "minibatches_per_epoch": minibatches},
        optimizer={"max_grad_norm": 0.5, "name": optimizer},
    )
    state = start_pqn_in_float64(config)
    samples = pqn.prepare(state.source.collector.collect(state.network, config.num_steps), config)
    return Update(state, samples, lambda: pqn.improve_values(samples, state, config, 1e-2))


def of_pqn_with_adam(minibatches: int) -> Update:
    return of_pqn(minibatches, "adam")


def of_pqn_with_sgd(minibatches: int) -> Update:
    return of_pqn(minibatches, "sgd")


UPDATES = [of_ppo_ewma, of_ppo_with_copies, of_ppg, of_pqn, of_pqn_with_adam, of_pqn_with_sgd]
every_update = pytest.mark.parametrize("begin", UPDATES)


@pytest.fixture
def leave_unread(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets states that are made from now on take the CPU for a device that is not to be read."""
    return lambda: monkeypatch.setattr(machine, "reads_are_free", lambda _: False)


def reads_of(update: Update) -> int:
    with CountedReads() as reads:
        update.make()
    return reads.count


@pytest.fixture
def host_makes_minibatches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out of the count what minibatches are made of, which is on the host wherever samples are."""
    epoch = minibatch.epoch

    def uncounted(*args: Any) -> list[torch.Tensor]:
        with torch._C.DisableTorchFunction():
            return epoch(*args)

    monkeypatch.setattr(minibatch, "epoch", uncounted)


@every_update
@pytest.mark.usefixtures("host_makes_minibatches")
def test_an_update_asks_its_device_equally_often_however_many_steps_it_takes(
    begin: Callable[[int], Update], leave_unread: Callable[[], None]
):
    few, many = (reads_of(begin(minibatches)) for minibatches in (2, 9))
    assert many > few  # a CPU is asked at every step
    leave_unread()
    few, many = (reads_of(begin(minibatches)) for minibatches in (2, 9))
    assert few == many


def test_a_step_of_an_auxiliary_phase_asks_its_device_nothing(leave_unread: Callable[[], None]):
    leave_unread()
    config = phase_config(**PROBLEM, phase={"policy_iterations": 1})
    state = ppg_state.start(config, make_env(config, env_steps=0), say=lambda _: None)
    data = state.source.collector.collect(state.network, config.num_steps)
    samples = prepare(data, state.policy, config)
    state.data.add(0, obs=samples.obs, value_target=samples.value_target, valid=samples.valid)
    state.progress = ppg_state.AuxiliaryProgress(ppg.frozen_policy(state), frozen_log_std=None)
    parts = ppg.auxiliary_minibatches(state, config)
    with CountedReads() as reads:
        for part in parts:
            ppg.auxiliary_step(part, state, config)
    assert reads.count == 0 and len(parts) > 2
    state.auxiliary_steps.settle()
    assert state.auxiliary_steps.counts.taken == len(parts)


def left_behind(update: Update) -> dict[str, object]:
    """Everything that an update changes, and what it says of itself."""
    metrics = update.make()
    saved = update.state.snapshot()
    assert saved is not None
    return {
        "metrics": {name: value for name, value in metrics.items() if value is not None},
        "counters": {n: v for n, v in update.state.metrics().items() if v is not None},
        "state": tensors_in(saved.shared),
    }


def tensors_in(tree: object) -> object:
    """A tree of plain numbers and tensors without what cannot be compared."""
    if isinstance(tree, dict):
        return {name: tensors_in(value) for name, value in tree.items() if value is not None}
    if isinstance(tree, list | tuple):
        return [tensors_in(value) for value in tree]
    if isinstance(tree, torch.Tensor):
        return tree
    return float(tree) if isinstance(tree, int | float) else 0.0


@every_update
@pytest.mark.parametrize("spoiled", [False, True], ids=["finite", "with skipped steps"])
def test_an_unread_update_equals_one_that_looks_at_every_norm(
    begin: Callable[[int], Update], spoiled: bool, leave_unread: Callable[[], None]
):
    looked_at = begin(3)
    leave_unread()
    unread = begin(3)
    if spoiled:
        looked_at.spoil()
        unread.spoil()
    torch.testing.assert_close(
        left_behind(unread), left_behind(looked_at), rtol=1e-12, atol=1e-12, equal_nan=True
    )
    assert (unread.state.steps.counts.skipped > 0) == spoiled
    assert torch.isfinite(unread.state.steps.flat.values).all()


def test_a_first_step_that_is_skipped_leaves_nothing_behind(leave_unread: Callable[[], None]):
    leave_unread()
    for begin in UPDATES:
        steps = begin(3).state.steps
        before = steps.flat.values.clone()
        steps.flat.grads.fill_(torch.inf)
        steps.apply()
        steps.settle()
        assert torch.equal(steps.flat.values, before) and steps.counts.skipped == 1


def test_five_skipped_steps_in_a_row_end_the_run_with_the_iteration(leave_unread: Callable[[], None]):
    leave_unread()
    update = of_ppo(1, update={"epochs": 11, "minibatches_per_epoch": 1})
    update.spoil()
    step, env = (int(index) for index in update.samples.valid.nonzero()[11])
    with pytest.raises(TrainingError, match=f"advantage of environment {env} at step {step} "):
        update.make()
    assert (update.state.steps.counts.taken, update.state.steps.counts.skipped) == (0, 5)
