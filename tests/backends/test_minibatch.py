"""Every valid sample once per epoch, in parts as even as they can be, for any sizes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from anybatch.backends import minibatches as minibatch

SIZES = {"num_steps": st.integers(1, 13), "num_envs": st.integers(1, 11), "seed": st.integers(0, 99)}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_valid(num_steps: int, num_envs: int, seed: int) -> Tensor:
    return torch.rand(num_steps, num_envs, generator=generator(seed)) < 0.7


def spread(parts: list[Tensor]) -> int:
    sizes = [len(part) for part in parts]
    return max(sizes) - min(sizes)


@given(minibatches=st.integers(1, 200), **SIZES)
def test_samples_every_valid_one_exactly_once_in_parts_that_differ_by_at_most_one(
    num_steps: int, num_envs: int, seed: int, minibatches: int
):
    valid = random_valid(num_steps, num_envs, seed)
    parts = minibatch.epoch(valid, minibatches, "samples", generator(seed))
    assert len(parts) == minibatches
    assert sorted(torch.cat(parts).tolist()) == valid.flatten().nonzero().flatten().tolist()
    assert spread(parts) <= 1


def test_fewer_samples_than_minibatches_leave_some_empty():
    parts = minibatch.epoch(torch.ones(2, 1, dtype=torch.bool), 3, "sequences", generator())
    assert [part.tolist() for part in parts] == [[0], [1], []]


@given(share=st.floats(0, 1), **SIZES)
def test_sequences_every_valid_sample_exactly_once_in_parts_of_whole_chunks(
    num_steps: int, num_envs: int, seed: int, share: float
):
    minibatches = 1 + round(share * (num_steps * num_envs - 1))
    valid = random_valid(num_steps, num_envs, seed)
    parts = minibatch.epoch(valid, minibatches, "sequences", generator(seed))
    assert len(parts) == minibatches
    assert sorted(torch.cat(parts).tolist()) == valid.flatten().nonzero().flatten().tolist()
    # With all samples valid no part is empty, and every env's share of a part is one stretch of time.
    for part in minibatch.epoch(torch.ones_like(valid), minibatches, "sequences", generator(seed)):
        times, envs = part // num_envs, part % num_envs
        assert len(part) > 0
        for env in envs.unique():
            stretch = times[envs == env]
            assert torch.equal(stretch, torch.arange(int(stretch[0]), int(stretch[0]) + len(stretch)))


@given(minibatches=st.integers(1, 11), **SIZES)
def test_sequences_are_spread_evenly(num_steps: int, num_envs: int, seed: int, minibatches: int):
    count = minibatches * num_envs  # at least as many envs as minibatches
    parts = minibatch.epoch(
        torch.ones(num_steps, count, dtype=torch.bool), minibatches, "sequences", generator(seed)
    )
    assert spread(parts) == 0
    assert all(len(part) == num_steps * num_envs for part in parts)


def test_64_envs_in_8_minibatches_are_8_whole_envs_each():
    parts = minibatch.epoch(torch.ones(256, 64, dtype=torch.bool), 8, "sequences", generator())
    for part in parts:
        envs, counts = (part % 64).unique(return_counts=True)
        assert len(envs) == 8 and set(counts.tolist()) == {256}


def test_4_envs_in_8_minibatches_are_halves():
    parts = minibatch.epoch(torch.ones(256, 4, dtype=torch.bool), 8, "sequences", generator())
    halves = [(int(part[0]) % 4, int(part[0]) // 4) for part in parts]
    for part, (env, first) in zip(parts, halves, strict=True):
        assert torch.equal(part, torch.arange(first, first + 128) * 4 + env)
    assert sorted(halves) == [(env, first) for env in range(4) for first in (0, 128)]
    # In time order within an env, as in the paper's code.
    assert [first for _, first in halves] == [0, 128] * 4


def test_1_env_in_8_minibatches_is_8_consecutive_chunks():
    parts = minibatch.epoch(torch.ones(256, 1, dtype=torch.bool), 8, "sequences", generator())
    assert [part.tolist() for part in parts] == [list(range(32 * k, 32 * k + 32)) for k in range(8)]


@given(minibatches=st.integers(1, 40), first=st.integers(0, 10), count=st.integers(1, 11), **SIZES)
def test_stratified_parts_have_equally_many_samples_of_any_range_of_envs(
    num_steps: int, num_envs: int, seed: int, minibatches: int, first: int, count: int
):
    valid = random_valid(num_steps, num_envs, seed)
    parts = minibatch.epoch(valid, minibatches, "samples", generator(seed), "stratified")
    assert len(parts) == minibatches and spread(parts) <= 1
    assert sorted(torch.cat(parts).tolist()) == valid.flatten().nonzero().flatten().tolist()
    shares = [part[(part % num_envs >= first) & (part % num_envs < first + count)] for part in parts]
    assert spread(shares) <= 2


@given(minibatches=st.integers(1, 11), first=st.integers(0, 10), count=st.integers(1, 11), **SIZES)
def test_stratified_parts_have_equally_many_sequences_of_any_range_of_envs(
    num_steps: int, num_envs: int, seed: int, minibatches: int, first: int, count: int
):
    valid = torch.ones(2, num_steps, minibatches * num_envs, dtype=torch.bool)
    parts = minibatch.sequence_epoch(valid, minibatches, generator(seed), "stratified")
    assert spread(parts) == 0 and sorted(torch.cat(parts).tolist()) == list(range(valid.numel()))
    envs = [part % valid.shape[2] for part in parts]
    shares = [part[(part >= first) & (part < first + count)] for part in envs]
    assert spread(shares) <= 2 * num_steps


@pytest.mark.parametrize("minibatch_of", ["samples", "sequences"])
@pytest.mark.parametrize("shape", [(1, 6), (3, 5)])
def test_stratified_draws_put_any_sample_into_any_part(minibatch_of: str, shape: tuple[int, int]):
    valid, draws, shared = torch.ones(shape, dtype=torch.bool), 3000, generator(1)
    seen = torch.zeros(4, valid.numel())
    for _ in range(draws):
        for number, part in enumerate(minibatch.epoch(valid, 4, minibatch_of, shared, "stratified")):
            seen[number, part] += 1
    assert (seen / draws - 1 / 4).abs().max() < 0.05  # six standard deviations


@pytest.mark.parametrize("draw", ["random", "stratified"])
@pytest.mark.parametrize("minibatch_of", ["samples", "sequences"])
def test_the_order_is_the_generators(minibatch_of: str, draw: minibatch.Draw):
    valid = torch.ones(7, 11, dtype=torch.bool)
    shared = generator(3)
    first, second = (minibatch.epoch(valid, 5, minibatch_of, shared, draw) for _ in range(2))
    again = minibatch.epoch(valid, 5, minibatch_of, generator(3), draw)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(torch.cat(first), torch.cat(second))


@given(samples=st.integers(0, 300), microbatch=st.integers(1, 99))
def test_microbatches_are_as_few_and_as_even_as_the_limit_allows(samples: int, microbatch: int):
    parts = list(minibatch.microbatches(torch.arange(samples), microbatch))
    assert torch.equal(torch.cat(parts), torch.arange(samples))
    assert len(parts) == max(1, -(-samples // microbatch))
    assert spread(parts) <= 1 and max(map(len, parts)) <= microbatch
