"""`anybatch.WeightAverage`, for modules of any kind."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy_runs import start_in_float64, toy_config

import anybatch
from anybatch import rules
from anybatch.weight_average import WeightAverage

CENTER = 8.0


def move(module: nn.Module, seed: int) -> None:
    """As an optimizer would: other weights, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight += torch.randn(weight.shape, generator=generator).to(weight)


def weights(module: nn.Module) -> list[Tensor]:
    return [weight.detach().clone() for weight in module.parameters()]


def test_it_is_the_weighted_mean_of_all_weights_so_far():
    module = nn.Linear(3, 2).double()
    average, seen = WeightAverage(module, center_of_mass=CENTER), [module.weight.detach().clone()]
    for seed in range(5):
        move(module, seed)
        average.update()
        seen.append(module.weight.detach().clone())
    shares = [(8 / 9) ** age for age in reversed(range(6))]
    expected = sum(share * weight for share, weight in zip(shares, seen, strict=True)) / sum(shares)
    torch.testing.assert_close(average.module.weight, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["ewma", "periodic"])
def test_it_is_what_the_training_loops_use(kind: str):
    state = start_in_float64(toy_config(proximal={"policy": kind}))
    internal: Any = state.backend.average
    every = 5
    pace: dict[str, Any] = {"center_of_mass": CENTER} if kind == "ewma" else {"copy_every": every}
    average = WeightAverage(state.network.policy, **pace)
    decay = rules.decay_from_center_of_mass(CENTER)
    for step in range(23):
        if step == 8:  # from here on, a gradient step stands for half as many env steps
            average.rescale(0.5)
            internal.rescale(2.0)
            decay = rules.rescaled_proximal_decay(decay, 0.5)
            every = int(rules.rescaled_copy_every(every, 0.5, rounded=True))
        move(state.network, step)
        average.update()
        internal.update(decay if kind == "ewma" else every)
        torch.testing.assert_close(weights(average.module), weights(internal.policy), rtol=1e-12, atol=1e-12)


def test_a_copy_is_taken_every_so_many_gradient_steps():
    module = nn.Linear(2, 2)
    average, expected = WeightAverage(module, copy_every=3), weights(module)
    for step in range(1, 8):
        move(module, step)
        average.update()
        expected = weights(module) if step % 3 == 0 else expected
        torch.testing.assert_close(weights(average.module), expected, rtol=0, atol=0)


def test_the_copy_is_frozen_in_eval_mode_and_does_not_change_the_module():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    average = WeightAverage(module, center_of_mass=1)
    assert not any(weight.requires_grad for weight in average.module.parameters())
    assert not average.module.training and module.training
    assert all(weight.requires_grad for weight in module.parameters())
    before = weights(module)
    average.update()
    torch.testing.assert_close(weights(module), before, rtol=0, atol=0)


def test_buffers_are_copied():
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    average = WeightAverage(module, center_of_mass=100)
    module(torch.randn(50, 3) + 5)
    average.update()
    torch.testing.assert_close([*average.module.buffers()], [*module.buffers()], rtol=0, atol=0)
    assert average.module[1].num_batches_tracked == 1


def test_shared_weights_are_averaged_once_and_stay_shared():
    module = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 4, bias=False))
    module[1].weight = module[0].weight
    average = WeightAverage(module, center_of_mass=1)
    start = module[0].weight.detach().clone()
    move(module, 1)
    average.update()
    assert average.module[0].weight is average.module[1].weight
    torch.testing.assert_close(average.module[0].weight, (start * 0.5 + module[0].weight.detach()) / 1.5)


def test_a_module_may_span_devices_and_the_copy_may_be_elsewhere():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    average = WeightAverage(module, center_of_mass=1)
    start = module[0].weight.detach().clone()
    move(module[0], 1)
    average.update()
    torch.testing.assert_close(average.module[0].weight, (start * 0.5 + module[0].weight.detach()) / 1.5)
    elsewhere = WeightAverage(nn.Linear(2, 2), center_of_mass=1)
    elsewhere.module.to("meta")
    elsewhere.update()
    assert elsewhere.module.weight.device.type == "meta"


def test_weights_of_half_precision_are_averaged_in_single_precision():
    module = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    nn.init.zeros_(module.weight)
    average = WeightAverage(module, center_of_mass=1000)
    for _ in range(3000):
        average.update()
    nn.init.ones_(module.weight)
    for _ in range(1000):  # each moves by a thousandth, which bfloat16 loses near 1
        average.update()
    decay = 1000 / 1001
    assert average.module.weight.dtype == torch.bfloat16
    total = 1 - decay**4001
    assert average.module.weight.item() == pytest.approx((1 - decay**1000) / total, rel=0.01)


@pytest.mark.parametrize("pace", [{"center_of_mass": 3.0}, {"copy_every": 4}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_average_continues_as_the_saved_one(pace: dict[str, Any], dtype: torch.dtype):
    module = nn.Linear(2, 2).to(dtype)
    one, other = WeightAverage(module, **pace), WeightAverage(module, **pace)
    for step in range(6):
        move(module, step)
        one.update()
    one.rescale(0.5)
    other.load_state_dict(one.state_dict())
    for step in range(6):
        move(module, step)
        one.update()
        other.update()
        torch.testing.assert_close(weights(other.module), weights(one.module), rtol=0, atol=0)
    other_kind: dict[str, Any] = {"copy_every": 2} if "center_of_mass" in pace else {"center_of_mass": 1}
    with pytest.raises(ValueError, match="other kind"):
        WeightAverage(module, **other_kind).load_state_dict(one.state_dict())


@pytest.mark.parametrize(
    "pace", [{}, {"center_of_mass": 1, "copy_every": 2}, {"center_of_mass": -1}, {"copy_every": 0}]
)
def test_a_wrong_pace_is_refused(pace: dict[str, Any]):
    with pytest.raises(ValueError, match=r"center_of_mass|copy_every"):
        WeightAverage(nn.Linear(1, 1), **pace)
    with pytest.raises(ValueError, match="ratio = 0"):
        WeightAverage(nn.Linear(1, 1), copy_every=1).rescale(0)


def test_it_is_public_and_imports_torch_only():
    assert anybatch.WeightAverage is WeightAverage
    code = "import sys, anybatch.weight_average; print(*{'gymnasium', 'tyro'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()
