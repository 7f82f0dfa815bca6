import math

import pytest
import torch
from torch import Tensor

from anybatch.equations import divergence, objectives
from anybatch.equations.objectives import decoupled_objective

LOG = {name: math.log(p) for name, p in (("current", 0.5), ("proximal", 0.4), ("behavior", 0.25))}


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def samples(count: int = 101, spread: float = 0.5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Current, proximal and behavior log-probabilities and advantages; only the first has a gradient."""
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(4, count, generator=generator, dtype=torch.float64)
    behavior, advantage = -1 - noise[0].abs(), noise[1]
    current, proximal = behavior + spread * noise[2], behavior + spread * noise[3]
    return current.requires_grad_(), proximal, behavior, advantage


def gradient(objective: Tensor, logp: Tensor) -> Tensor:
    return torch.autograd.grad(objective.sum(), logp, retain_graph=True)[0]


def importance_weighted(logp: Tensor, behavior: Tensor, advantage: Tensor, cap: float = 100.0) -> Tensor:
    """π / π_behavior · Â with the ratio capped; its slope in log π is its value, capped or not."""
    ratio = (logp - behavior).exp().detach().clamp(max=cap)
    return ratio * (logp - logp.detach()).exp() * advantage


def assert_same_value_and_gradient(one: Tensor, other: Tensor, logp: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient(one, logp), gradient(other, logp), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("advantage", "objective", "slope"), [(1.0, 1.92, 0.0), (-1.0, -2.0, -2.0), (-2.0, -4.0, -4.0)]
)
def test_the_clipped_objective_has_the_worked_numbers(
    advantage: float, objective: float, slope: float
) -> None:
    logp = doubles(LOG["current"]).requires_grad_()
    result = decoupled_objective(
        logp, doubles(LOG["proximal"]), doubles(LOG["behavior"]), doubles(advantage), clip=0.2
    )
    assert result.item() == pytest.approx(objective, abs=1e-12)
    assert gradient(result, logp).item() == pytest.approx(slope, abs=1e-12)


@pytest.mark.parametrize(
    ("clip", "objective", "slope"),
    [(math.inf, 2.0 - 3 * 0.1, 2.0 - 3 * 0.4), (0.2, 1.92 - 3 * 0.1, -3 * 0.4)],
)
def test_the_penalized_objective_has_the_worked_numbers(clip: float, objective: float, slope: float) -> None:
    logp = doubles(LOG["current"]).requires_grad_()
    result = decoupled_objective(
        logp,
        doubles(LOG["proximal"]),
        doubles(LOG["behavior"]),
        doubles(1.0),
        clip=clip,
        kl=0.1 + 0.4 * (logp - LOG["current"]),  # a divergence of 0.1 that grows by 0.4 with log π
        kl_penalty=3.0,
    )
    assert result.item() == pytest.approx(objective, abs=1e-12)
    assert gradient(result, logp).item() == pytest.approx(slope, abs=1e-12)


def test_the_clipped_objective_is_the_minimum_it_is_defined_as() -> None:
    logp, proximal, behavior, advantage = samples()
    ratio = (logp - proximal).exp()
    defined = (proximal - behavior).exp() * torch.minimum(
        ratio * advantage, ratio.clamp(0.8, 1.2) * advantage
    )
    ours = decoupled_objective(logp, proximal, behavior, advantage, clip=0.2)
    assert_same_value_and_gradient(ours, defined, logp)
    kl = divergence.sampled_kl_squared(logp, proximal)
    held_twice = decoupled_objective(logp, proximal, behavior, advantage, clip=0.2, kl=kl, kl_penalty=3.0)
    assert_same_value_and_gradient(held_twice, defined - 3.0 * kl, logp)


def test_equals_ppo_when_proximal_is_behavior() -> None:
    logp, _, behavior, advantage = samples()
    ratio = (logp - behavior).exp()
    ppo = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    for cap in (100.0, math.inf):
        decoupled = decoupled_objective(logp, behavior, behavior, advantage, clip=0.2, max_importance=cap)
        assert_same_value_and_gradient(decoupled, ppo, logp)


def test_equals_kl_penalized_ppo_when_proximal_is_behavior() -> None:
    logp, _, behavior, advantage = samples()
    kl = divergence.sampled_kl_squared(logp, behavior)
    ppo = (logp - behavior).exp() * advantage - 3.0 * 0.5 * (logp - behavior) ** 2
    for cap in (100.0, math.inf):
        decoupled = decoupled_objective(
            logp,
            behavior,
            behavior,
            advantage,
            clip=math.inf,
            max_importance=cap,
            kl=kl,
            kl_penalty=3.0,
        )
        assert_same_value_and_gradient(decoupled, ppo, logp)


def test_no_clip_and_no_penalty_remove_the_proximal_policy() -> None:
    logp, proximal, behavior, advantage = samples()
    plain = importance_weighted(logp, behavior, advantage)
    for nearby in (proximal, proximal - 3.0):
        unclipped = decoupled_objective(logp, nearby, behavior, advantage, clip=math.inf)
        assert_same_value_and_gradient(unclipped, plain, logp)
        kl = divergence.sampled_kl_squared(logp, nearby)
        free = decoupled_objective(logp, nearby, behavior, advantage, clip=math.inf, kl=kl, kl_penalty=0.0)
        assert_same_value_and_gradient(free, plain, logp)
    huge = decoupled_objective(logp, proximal, behavior, advantage, clip=1e9)
    assert_same_value_and_gradient(huge, plain, logp)


def test_clip_of_one_or_more_has_no_lower_bound() -> None:
    logp, proximal, behavior, advantage = samples(spread=2.0)
    advantage = -advantage.abs()
    clipped = decoupled_objective(logp, proximal, behavior, advantage, clip=1.5)
    assert_same_value_and_gradient(clipped, importance_weighted(logp, behavior, advantage), logp)


def test_no_clip_can_be_said_as_none() -> None:
    logp, proximal, behavior, advantage = samples()
    unclipped = decoupled_objective(logp, proximal, behavior, advantage, clip=math.inf)
    assert torch.equal(decoupled_objective(logp, proximal, behavior, advantage, clip=None), unclipped)
    assert not divergence.is_clipped(logp - proximal, None).any()


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "slope"),
    [
        (1.25, 1.0, 1.25, 1.25),  # within [0.8, 1.3]; a clip of 0.2 alone would hold it at 1.2
        (1.5, 1.0, 1.3, 0.0),
        (0.85, -1.0, -0.85, -0.85),
        (0.5, -1.0, -0.8, 0.0),
        (0.5, 1.0, 0.5, 0.5),  # a bound holds in one direction only
        (1.5, -1.0, -1.5, -1.5),
    ],
)
def test_a_pair_of_clips_has_a_bound_of_its_own_on_each_side(
    ratio: float, advantage: float, objective: float, slope: float
) -> None:
    logp = doubles(math.log(0.4 * ratio)).requires_grad_()
    proximal = doubles(math.log(0.4))
    found = decoupled_objective(logp, proximal, proximal, doubles(advantage), clip=(0.2, 0.3))
    assert found.item() == pytest.approx(objective, rel=1e-12)
    assert gradient(found, logp).item() == pytest.approx(slope, rel=1e-12, abs=1e-12)


def test_a_pair_of_equal_clips_is_one_clip() -> None:
    logp, *rest = samples()
    assert_same_value_and_gradient(
        decoupled_objective(logp, *rest, clip=(0.2, 0.2)), decoupled_objective(logp, *rest, clip=0.2), logp
    )


def sequences() -> tuple[list[Tensor], Tensor, Tensor]:
    """Log-probabilities of three policies [3, 7], advantages [3, 7], and a mask with prompts and padding."""
    columns = [column.detach().reshape(3, 7) for column in samples(21)]
    mask = torch.tensor([[0, 1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 0, 0, 0], [1] * 7], dtype=torch.bool)
    columns[0].requires_grad_()
    return columns[:3], columns[3], mask


def test_the_objective_of_tokens_is_that_of_samples_where_the_mask_is() -> None:
    columns, advantage, mask = sequences()
    tokens = objectives.token_objective(*columns, advantage, mask, clip=0.2)
    flat = decoupled_objective(*(column[mask] for column in columns), advantage[mask], clip=0.2)
    assert tokens.shape == mask.shape and not tokens[~mask].any()
    assert_same_value_and_gradient(tokens[mask], flat, columns[0])
    assert not gradient(tokens, columns[0])[~mask].any()


def test_padding_may_hold_anything() -> None:
    columns, advantage, mask = sequences()
    expected = objectives.token_objective(*columns, advantage, mask, clip=0.2)
    padded = [torch.where(mask, column.detach(), math.nan) for column in columns]
    padded[0].requires_grad_()
    found = objectives.token_objective(*padded, torch.where(mask, advantage, math.nan), mask, clip=0.2)
    assert torch.equal(found, expected)
    assert gradient(found, padded[0]).isfinite().all()


def test_an_advantage_of_the_sequence_is_that_of_its_tokens() -> None:
    columns, _, mask = sequences()
    whole = doubles(1.0, -1.0, 0.5)
    each = objectives.token_objective(*columns, whole[:, None].expand(3, 7), mask, clip=0.2)
    assert torch.equal(objectives.token_objective(*columns, whole, mask, clip=0.2), each)


def test_a_sequence_of_one_token_has_the_ratio_of_that_token() -> None:
    columns, advantage, mask = sequences()
    for per_token in (False, True):
        whole = [objectives.sequence_logp(column, mask, per_token=per_token) for column in columns]
        found = decoupled_objective(*whole, advantage[:, 3], clip=0.2)[1]
        token = objectives.token_objective(*columns, advantage, mask, clip=0.2)[1, 3]
        assert_same_value_and_gradient(found, token, columns[0])


def test_the_log_probability_of_a_sequence_is_the_sum_or_mean_over_its_tokens() -> None:
    logp = doubles(-1.0, -2.0, -4.0, math.nan).reshape(1, 4)
    mask = torch.tensor([[True, True, True, False]])
    assert objectives.sequence_logp(logp, mask).item() == -7
    assert objectives.sequence_logp(logp, mask, per_token=True).item() == pytest.approx(-7 / 3)
    assert objectives.sequence_logp(logp, ~mask & mask, per_token=True).item() == 0


@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_importance_is_capped_and_keeps_its_gradient(advantage: float) -> None:
    logp = doubles(0.0).requires_grad_()
    result = decoupled_objective(
        logp, doubles(0.0), doubles(-10.0), doubles(advantage), clip=math.inf, max_importance=100.0
    )
    assert result.item() == pytest.approx(100 * advantage, rel=1e-12)
    assert gradient(-result, logp).item() == pytest.approx(-100 * advantage, rel=1e-12)


def test_importance_below_the_cap_is_untouched() -> None:
    logp, _, behavior, _ = samples()
    assert torch.equal(objectives.capped_behavior_logp(logp, behavior, 100.0), behavior)
    assert torch.equal(objectives.capped_behavior_logp(logp, behavior, math.inf), behavior)


def test_the_clipped_objective_is_capped_too() -> None:
    logp = doubles(0.0).requires_grad_()
    result = decoupled_objective(logp, doubles(0.0), doubles(-10.0), doubles(1.0), clip=0.2)
    assert result.item() == pytest.approx(100.0)


@pytest.mark.parametrize(("clip", "kl_penalty"), [(0.2, None), (math.inf, 2.0), (0.2, 2.0)])
def test_objectives_have_the_gradients_that_finite_differences_have(
    clip: float, kl_penalty: float | None
) -> None:
    logp, proximal, behavior, advantage = samples(13)

    def objective(logp: Tensor) -> Tensor:
        if kl_penalty is None:
            return decoupled_objective(logp, proximal, behavior, advantage, clip=clip)
        kl = divergence.sampled_kl_squared(logp, proximal)
        return decoupled_objective(
            logp, proximal, behavior, advantage, clip=clip, kl=kl, kl_penalty=kl_penalty
        )

    assert torch.autograd.gradcheck(objective, logp)


def test_value_loss_is_the_squared_error() -> None:
    value = doubles(1.0, 2.0).requires_grad_()
    loss = objectives.value_loss(value, doubles(3.0, 1.5))
    torch.testing.assert_close(loss, doubles(4.0, 0.25))
    torch.testing.assert_close(gradient(loss, value), doubles(-4.0, 1.0))


def test_clipped_value_loss_takes_the_worse_of_the_two() -> None:
    value, target, collected = doubles(1.0, 1.0), doubles(2.0, 0.0), doubles(0.0, 0.0)
    loss = objectives.value_loss(value, target, collected_value=collected, clip=0.2)
    torch.testing.assert_close(loss, doubles((0.2 - 2.0) ** 2, 1.0))
