import itertools

import pytest
import torch

from anybatch.seeding import env_seeds, torch_generator

GOLDEN_ENV_SEEDS = [369929762, 1626088155, 323174865]
GOLDEN_GENERATOR_SEED = 5986519294958235966


def test_neighboring_seeds_share_no_env_seed():
    first, second = (env_seeds(seed, role="train", num_envs=1000) for seed in (1, 2))
    assert not set(first) & set(second)


def test_env_seeds_are_distinct_and_fit_a_c_int():
    seeds = env_seeds(3, role="train", num_envs=1000)
    assert len(set(seeds)) == 1000
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)


def test_env_seeds_stay_distinct_when_the_stream_repeats_itself(monkeypatch: pytest.MonkeyPatch):
    # With seeds of four bits, collisions are certain: all sixteen must come out, each once.
    monkeypatch.setattr("anybatch.seeding._LARGEST_SEED", 15)
    assert sorted(env_seeds(1, role="train", num_envs=16)) == list(range(16))


def test_adding_envs_keeps_the_seeds_of_the_first_ones():
    few, many = (env_seeds(5, role="train", num_envs=count) for count in (7, 1000))
    assert many[:7] == few


def test_role_and_env_steps_give_other_env_seeds():
    variants = [
        env_seeds(1, role=role, num_envs=97, env_steps=env_steps)
        for role, env_steps in itertools.product(("train", "evaluation"), (0, 1, 2**33))
    ]
    assert len({seed for seeds in variants for seed in seeds}) == 97 * len(variants)


def test_seeds_do_not_change_between_versions_of_this_project():
    assert env_seeds(1, role="train", num_envs=3) == GOLDEN_ENV_SEEDS
    assert torch_generator(1, role="actions").initial_seed() == GOLDEN_GENERATOR_SEED


def test_generators_are_equal_for_equal_arguments_and_differ_by_seed_role_and_draw():
    def draw(seed: int, role, number: int) -> tuple[float, ...]:
        return tuple(torch.rand(5, generator=torch_generator(seed, role=role, draw=(number,))).tolist())

    roles = ("network", "actions", "minibatches", "evaluation", "noise_scale", "auxiliary")
    keys = list(itertools.product((1, 2), roles, (0, 1)))
    assert draw(1, "actions", 0) == draw(1, "actions", 0)
    assert len({draw(*key) for key in keys}) == len(keys)
