"""The dial: what follows from a batch, for the numbers of the paper and for any integers."""

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_runs import changed, toy_config, toy_pqn_config

from anybatch import machine, planning
from anybatch.backends.threads import set_threads
from anybatch.config import (
    DEFAULT_RESCALE_RULES,
    RESCALE_RULES,
    AnyConfig,
    PPOConfig,
    RunConfig,
    rescale_rules,
)
from anybatch.config.planned import Meaning, divided_by, ratio_text, root_text
from anybatch.dial import Hyperparameters, Plan, PlanRow, PlanTable, make_plan, plan_rows, plan_table
from anybatch.errors import ConfigError
from anybatch.planning import expected_encoder
from anybatch.rules import center_of_mass, effective_sample_size
from anybatch.text import counted, number_text, readable

PROCGEN = toy_config(
    num_envs=256,
    num_steps=256,
    update={"epochs": 1, "minibatches_per_epoch": 8},
    proximal={"policy": "ewma", "ewma_decay": 8 / 9},
    objective={"advantage_decay": 0.0},
    optimizer={"learning_rate": 5e-4},
)


def plan(**changes: object) -> Plan:
    return make_plan(changed(PROCGEN, **changes), encoder="mlp")


def numbers(**changes: object) -> Hyperparameters:
    return plan(**changes).hyperparameters


def table_of(config: PPOConfig) -> PlanTable:
    return plan_table(config, make_plan(config, encoder="mlp"))


def table(**changes: object) -> PlanTable:
    return table_of(changed(PROCGEN, **changes))


TUNED = numbers()


@pytest.mark.parametrize(
    ("envs", "learning_rate", "proximal", "advantage", "beta1", "beta2"),
    [
        (256, 5e-4, 8 / 9, 0.0, 0.9, 0.999),
        (64, 2.5e-4, 32 / 33, 0.6, 0.974004, 0.99974991),
        (16, 1.25e-4, 128 / 129, 15 / 17, 0.993437, 0.99993747),
        (4, 6.25e-5, 512 / 513, 63 / 65, 0.998355, 0.99998437),
        (1, 3.125e-5, 2048 / 2049, 255 / 257, 0.999589, 0.99999609),
    ],
)
def test_the_sweep_of_the_paper(
    envs: int, learning_rate: float, proximal: float, advantage: float, beta1: float, beta2: float
):
    run = numbers(num_envs=envs)
    assert run.learning_rate == pytest.approx(learning_rate, rel=1e-12)
    assert run.proximal_decay == pytest.approx(proximal, rel=1e-12)
    assert run.advantage_decay == pytest.approx(advantage, rel=1e-12, abs=1e-15)
    assert (run.beta1, run.beta2) == (0.9, 0.999)

    with_betas = numbers(num_envs=envs, rescale=",".join(RESCALE_RULES))
    assert with_betas.learning_rate == run.learning_rate
    assert with_betas.beta1 == pytest.approx(beta1, abs=5e-7)
    assert with_betas.beta2 == pytest.approx(beta2, abs=5e-9)


def test_ranks_change_the_batch_only_where_it_is_theirs():
    assert changed(PROCGEN, num_envs=16).on_ranks(4) == changed(PROCGEN, num_envs=16)
    config = changed(PROCGEN, envs_per_rank=16).on_ranks(4)
    four_ranks = make_plan(config, encoder="mlp")
    assert four_ranks.hyperparameters == numbers(num_envs=64)
    assert "64 envs × 256 steps = 16,384 samples" in plan_table(config, four_ranks).lines[0]


def test_numbers_follow_envs_per_rank_from_the_batch_tuned_at():
    config = changed(toy_config(), tuned_at=None, envs_per_rank=6).on_ranks(2)
    assert config.num_envs == 12 and config.tuned_at is not None and config.tuned_at.num_envs == 3


def test_more_ranks_than_envs_are_refused():
    with pytest.raises(ConfigError, match=r"5 ranks share num-envs = 3: each must have at least one env"):
        toy_config(num_envs=3).on_ranks(5)


def test_statistics_of_each_step_are_for_one_rank():
    config = toy_config(normalize={"observations": "step"})
    assert config.on_ranks(1) == config
    with pytest.raises(
        ConfigError, match=r"observations = step .* 2 ranks: use --normalize\.observations iteration"
    ):
        config.on_ranks(2)


@given(
    learning_rate=st.floats(1e-8, 1.0),
    decay=st.floats(0, 0.9999),
    advantage_decay=st.floats(0, 0.9999),
    envs=st.integers(1, 999),
    steps=st.integers(1, 999),
    epochs=st.integers(1, 20),
    optimizer=st.sampled_from(["adam", "radam", "sgd"]),
)
def test_at_the_tuned_batch_every_number_is_kept_to_the_bit(
    learning_rate: float,
    decay: float,
    advantage_decay: float,
    envs: int,
    steps: int,
    epochs: int,
    optimizer: str,
):
    config = toy_config(
        num_envs=envs,
        num_steps=steps,
        rescale=",".join(RESCALE_RULES),
        update={"epochs": epochs, "minibatches_per_epoch": 1 + envs * steps // 3},
        proximal={"ewma_decay": decay},
        objective={"advantage_decay": advantage_decay},
        optimizer={"name": optimizer, "learning_rate": learning_rate},
    )
    assert make_plan(config, encoder="mlp").hyperparameters == Hyperparameters(
        learning_rate=learning_rate,
        beta1=0.9,
        beta2=0.999,
        proximal_decay=decay,
        advantage_decay=advantage_decay,
    )


def test_rescale_none_keeps_every_number_at_any_batch():
    assert numbers(num_envs=4, rescale="none") == TUNED


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("learning-rate", {"learning_rate"}),
        ("proximal-ewma", {"proximal_decay"}),
        ("advantage-moments", {"advantage_decay"}),
        ("adam-betas", {"beta1", "beta2"}),
    ],
)
def test_a_single_rule_changes_its_own_numbers_only(rule: str, fields: set[str]):
    run = vars(numbers(num_envs=4, rescale=rule))
    assert {name for name, value in run.items() if value != vars(TUNED)[name]} == fields
    everything = vars(numbers(num_envs=4, rescale=",".join(RESCALE_RULES)))
    assert all(run[name] == everything[name] for name in fields)


def test_adam_betas_follow_the_minibatch_and_not_the_iteration_batch():
    rescale = ",".join(RESCALE_RULES)
    same = numbers(num_envs=512, update={"minibatches_per_epoch": 16}, rescale=rescale)
    assert (same.beta1, same.beta2) == (0.9, 0.999)
    smaller = numbers(update={"minibatches_per_epoch": 16}, rescale=rescale)
    assert (smaller.beta1, smaller.beta2) == pytest.approx((0.9**0.5, 0.999**0.5))


def test_adam_betas_are_not_part_of_all():
    assert numbers(num_envs=4) == numbers(num_envs=4, rescale=",".join(DEFAULT_RESCALE_RULES))
    assert numbers(num_envs=4).beta1 == 0.9


def test_sgd_follows_the_minibatch_itself():
    assert numbers(num_envs=16, optimizer={"name": "sgd"}).learning_rate == pytest.approx(5e-4 / 16)


def test_more_minibatches_change_learning_rate_and_proximal_decay_but_not_the_advantage_decay():
    run = numbers(update={"minibatches_per_epoch": 32})  # minibatch ÷ 4, iteration batch kept
    assert run.learning_rate == pytest.approx(2.5e-4)
    assert center_of_mass(run.proximal_decay) == pytest.approx(32)
    assert run.advantage_decay == TUNED.advantage_decay


def test_more_epochs_change_the_proximal_decay_only():
    run = numbers(update={"epochs": 3})  # as many samples a step, but a third of the env steps
    assert center_of_mass(run.proximal_decay) == pytest.approx(24)
    assert replace(run, proximal_decay=TUNED.proximal_decay) == TUNED


def test_a_larger_batch_than_tuned_stops_at_moments_of_one_iteration():
    config = changed(PROCGEN, num_envs=1024, objective={"advantage_decay": 1 / 3})
    run = make_plan(config, encoder="mlp").hyperparameters
    assert effective_sample_size(1 / 3) == pytest.approx(2)  # ÷ 4 would be half an iteration
    assert run.advantage_decay == 0


@given(
    envs=st.integers(1, 10_000),
    steps=st.integers(1, 10_000),
    minibatches=st.integers(1, 1000),
    epochs=st.integers(1, 50),
)
def test_any_integers_make_a_plan(envs: int, steps: int, minibatches: int, epochs: int):
    minibatches = min(minibatches, envs * steps)
    config = changed(
        PROCGEN,
        num_envs=envs,
        num_steps=steps,
        update={"minibatches_per_epoch": minibatches, "epochs": epochs},
    )
    result = make_plan(config, encoder="mlp")
    run = result.hyperparameters
    assert run.learning_rate == pytest.approx(5e-4 * math.sqrt(envs * steps / minibatches / 8192), rel=1e-9)
    # What the rules hold constant: the average's age in env steps, the moments' reach in samples.
    age = center_of_mass(run.proximal_decay) * envs * steps / minibatches / epochs
    assert age == pytest.approx(8 * 8192, rel=1e-6)
    reach = effective_sample_size(run.advantage_decay) * envs * steps
    assert reach == pytest.approx(max(65536, envs * steps), rel=1e-6)
    said = plan_table(config, result)
    assert len(said.lines) == 3 and len(said.rows) == 4


def test_a_plan_never_depends_on_another_plan():
    detour = PROCGEN
    for envs in (1, 7, 4096, 64):
        detour = changed(detour, num_envs=envs)
        make_plan(detour, encoder="mlp")
    assert make_plan(detour, encoder="mlp") == plan(num_envs=64)
    assert table_of(detour) == table(num_envs=64)
    assert plan() == make_plan(PROCGEN, encoder="mlp")


def test_plan_goes_through_json_unchanged():
    changes = {"num_envs": 7, "num_steps": 11}
    record = plan(**changes).to_json() | table(**changes).to_json()
    assert json.loads(json.dumps(record)) == record
    assert record["rows"] and record["warnings"]
    assert record["batch"]["iteration_batch"] == 77
    assert record["batch"]["minibatch"] == 77 / 8


def test_the_rows_name_what_changed_and_why():
    rows = {row.number: row for row in table(num_envs=64).rows}
    assert rows["learning rate"].tuned_at == "0.0005"
    assert rows["learning rate"].this_run == "0.00025"
    assert "√(1/4)" in rows["learning rate"].rule
    average, statistics = rows["proximal EWMA decay"], rows["advantage-statistics EWMA decay"]
    assert average.this_run == "0.969697" and statistics.this_run == "0.6"
    assert average.meaning == Meaning(name="center of mass, gradient steps", tuned_at="8", this_run="32")
    assert statistics.meaning == Meaning(name="effective window, iterations", tuned_at="1", this_run="4")
    kept = {row.number: row for row in table(num_envs=64, rescale="none").rows}
    assert kept["learning rate"].this_run == "0.0005"
    assert "kept" in kept["learning rate"].rule


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0625, "0.0625"),
        (2 / 3, "0.6667"),
        (1024, "1,024"),
        (9999.4, "9,999"),
        (9999.6, "10,000"),
        (-12500.4, "-12,500"),
        (2**20, "1,048,576"),
    ],
)
def test_numbers_have_no_power_of_ten_where_all_their_digits_can_be_read(value: float, text: str):
    assert number_text(value, 4) == text


def test_only_one_thing_is_not_in_the_plural():
    counts = {0: "0 samples", 0.5: "0.5 samples", 1: "1 sample", 1.5: "1.5 samples", 1024: "1,024 samples"}
    assert [counted(count, "sample") for count in counts] == list(counts.values())


def test_a_large_ratio_is_written_in_full():
    tuned = {"num_envs": 1, "num_steps": 8, "minibatches_per_epoch": 8, "epochs": 1}
    rows = {row.number: row for row in table(num_envs=12_500, num_steps=8, tuned_at=tuned).rows}
    assert "√12,500 (minibatch)" in rows["learning rate"].rule
    assert "÷ 12,500 (iteration batch)" in rows["advantage-statistics EWMA decay"].rule


def test_numbers_that_a_run_does_not_use_have_no_row():
    rows = table(proximal={"policy": "behavior"}, objective={"advantage_normalization": "none"}).rows
    assert [row.number for row in rows] == ["learning rate", "age of proximal policy, env steps"]


def test_the_microbatch_given_wins_over_the_rule():
    assert plan(microbatch=37).batch.microbatch == 37
    of_vectors, of_images = (make_plan(PROCGEN, encoder=encoder).batch for encoder in ("mlp", "impala"))
    assert of_vectors.microbatch > of_images.microbatch


def test_lines_show_the_products():
    lines = table(num_envs=64, microbatch=1000).lines
    assert "64 envs × 256 steps = 16,384 samples" in lines[0]
    assert "16,384 ÷ 8 = 2,048 samples, 1 epoch = 8 gradient steps" in lines[1]
    assert "3 passes per gradient step" in lines[2]


def test_one_of_a_kind_is_singular():
    lines = table(num_envs=1, num_steps=1, update={"epochs": 1, "minibatches_per_epoch": 1}).lines
    assert lines[0].endswith("1 env × 1 step = 1 sample")
    assert lines[1].endswith("1 ÷ 1 = 1 sample, 1 epoch = 1 gradient step per iteration")


RESCALED = {"num_envs": 64}
ONE_STEP = toy_config(num_envs=1, num_steps=1, update={"epochs": 1, "minibatches_per_epoch": 1})


@pytest.mark.parametrize(
    ("fragment", "broken"),
    [
        ("one policy epoch", {"update": {"epochs": 2}}),
        ("advantage-normalization = minibatch", {"objective": {"advantage_normalization": "minibatch"}}),
        ("target-kl = 0.1", {"update": {"target_kl": 0.1}}),
    ],
)
def test_preconditions_of_the_rule_warn_only_when_something_is_rescaled(
    fragment: str, broken: dict[str, object]
):
    (sentence,) = table(**RESCALED, **broken).warnings
    assert fragment in sentence
    assert not table(**RESCALED, **broken, rescale="none").warnings
    tuned_too = changed(PROCGEN, **broken)
    tuned_too = changed(tuned_too, tuned_at={"epochs": tuned_too.update.epochs})
    assert not table_of(tuned_too).warnings


def test_no_warning_where_no_precondition_is_broken():
    assert not table().warnings
    assert not table(**RESCALED).warnings


@pytest.mark.parametrize("rescale", ["all", "none"])
def test_another_rollout_length_warns_whatever_is_rescaled(rescale: str):
    (sentence,) = table(num_steps=128, rescale=rescale).warnings
    assert "num-steps = 128 instead of the tuned 256" in sentence


def test_a_center_of_mass_below_one_warns_where_the_average_is_used():
    assert "center of mass" not in " ".join(table(num_envs=8 * 256).warnings)  # exactly 1
    assert "center of mass is 0.5" in " ".join(table(num_envs=16 * 256).warnings)
    assert "center of mass" not in " ".join(
        table(num_envs=16 * 256, proximal={"policy": "behavior"}).warnings
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"optimizer": {"max_grad_norm": 0.5}}, "optimizer.max-grad-norm = 0.5 clips gradients"),
        ({"update": {"epochs": 3}, "tuned_at": {"epochs": 3}}, "The rule assumes one policy epoch"),
        ({"proximal": {"policy": "behavior"}}, "the age of the proximal policy in env steps follows"),
        ({"objective": {"advantage_normalization": "minibatch"}}, "in a way that no rule corrects"),
        ({}, ""),
    ],
)
def test_what_no_rule_corrects_is_said_at_another_batch_alone(changes: dict[str, Any], sentence: str):
    assert not table(**changes).warnings
    assert not table(num_envs=16, rescale="none", **changes).warnings
    said = table(num_envs=16, **changes).warnings
    assert len(said) == bool(sentence) and all(sentence in one for one in said)


def test_larger_minibatches_say_how_far_the_rules_were_found_to_hold():
    (sentence,) = table(num_envs=512).warnings
    assert "2 times the tuned one" in sentence and "128 to 512 samples" in sentence
    assert not table(num_envs=512, minibatch="auto").warnings


@pytest.mark.parametrize(
    ("policy", "tuned_at", "this_run"),
    [
        ("ewma", "65,536", "65,536"),
        ("periodic", "65,536", "65,536"),
        ("behavior", "up to 65,536", "up to 4,096"),
        ("iteration_start", "up to 65,536", "up to 4,096"),
    ],
)
def test_every_plan_tells_the_age_of_the_proximal_policy(policy: str, tuned_at: str, this_run: str):
    row = table(num_envs=16, proximal={"policy": policy}).rows[-1]
    assert (row.number, row.tuned_at, row.this_run) == (
        "age of proximal policy, env steps",
        tuned_at,
        this_run,
    )


def test_an_iteration_of_one_sample_warns_unless_moments_reach_further():
    (sentence,) = table_of(ONE_STEP).warnings
    assert "An iteration of one sample" in sentence
    for objective in ({"advantage_decay": 0.5}, {"advantage_normalization": "none"}):
        assert not table_of(changed(ONE_STEP, objective=objective)).warnings


@pytest.mark.parametrize(
    ("config", "microbatch", "convolutions"),
    [
        (toy_config(env="toy:Pixels84"), 128, True),
        (toy_config(env="toy:Pixels"), 64, True),
        (toy_pqn_config(env="toy:Pixels84"), 128, True),
        (toy_config(env="toy:Match"), 4096, False),
        (toy_config(env="toy:Nothing"), 4096, False),
    ],
)
def test_an_automatic_encoder_is_known_to_plan_and_threads_before_the_run(
    config: AnyConfig, microbatch: int, convolutions: bool, monkeypatch: pytest.MonkeyPatch
):
    assert config.network.encoder == "auto"
    assert planning.plan(config).batch.microbatch == microbatch
    used: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    set_threads(config, expected_encoder(config))
    assert used == [machine.available_cores() if convolutions else 1]


@pytest.mark.parametrize(
    ("count", "said"),
    [(999, "999 bytes"), (999_499, "999 kB"), (999_500, "1 MB"), (2_345_678, "2.35 MB")],
)
def test_bytes_have_three_digits_and_a_unit(count: int, said: str):
    assert readable(count) == said


def test_ranks_on_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch):
    used: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    monkeypatch.setattr(machine, "available_cores", lambda: 8)
    set_threads(toy_config(), "impala")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "32")
    for ranks_here in (1, 3, 16):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks_here))
        set_threads(toy_config(), "impala")
    assert used == [8, 8, 2, 1]


def test_an_automatic_device_has_the_microbatch_of_the_device_it_stands_for(monkeypatch: pytest.MonkeyPatch):
    def microbatch(device: str) -> int:
        return planning.plan(toy_config(network={"encoder": "impala"}, device=device)).batch.microbatch

    assert microbatch("auto") == microbatch("cpu") != microbatch("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(machine, "GPU_FILES", ("/",))
    assert microbatch("auto") == microbatch("cuda")
    monkeypatch.setenv("LOCAL_RANK", "1")
    devices: list[str] = []
    for ranks in ("1", "2", "3"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        devices.append(machine.device_name("auto"))
    assert devices == ["cuda", "cuda:1", "cpu"]


def betas_at(num_envs: int, **optimizer: float) -> tuple[Hyperparameters, str]:
    config = changed(
        PROCGEN, num_envs=num_envs, rescale="all,adam-betas", optimizer=optimizer or {"beta1": 0.9}
    )
    made = make_plan(config, encoder="mlp")
    return made.hyperparameters, next(row.rule for row in plan_rows(config, made) if "Adam" in row.number)


def test_adams_betas_have_a_floor_at_larger_batches():
    twice, _ = betas_at(512)
    assert (twice.beta1, twice.beta2) == (0.9**2, 0.999**2)
    largest, rule = betas_at(64 * 256)
    assert (largest.beta1, largest.beta2) == (0.5, 0.999**64)
    assert rule == "power 64 (minibatch), at least 0.5 and 0.9"
    assert betas_at(1024 * 256)[0].beta2 == 0.9


def test_the_floor_raises_no_beta_that_was_tuned_below_it():
    smaller, _ = betas_at(128, beta1=0.25, beta2=0.81)
    assert (smaller.beta1, smaller.beta2) == (0.5, 0.9)  # of the rule itself, not the floor
    larger, _ = betas_at(1024, beta1=0.25, beta2=0.81)
    assert (larger.beta1, larger.beta2) == (0.25, 0.81)


@pytest.mark.parametrize(
    ("ratio", "shown", "root", "divided"),
    [
        (4.0, "4", "√4", "÷ 4"),
        (1.5, "1.5", "√1.5", "÷ 1.5"),
        (1.0, "1", "√1", "÷ 1"),
        (0.75, "0.75", "√0.75", "÷ 0.75"),
        (1 / 3, "1/3", "√(1/3)", "× 3"),
        (1 / 256, "1/256", "√(1/256)", "× 256"),
        (1 / 2048, "1/2,048", "√(1/2,048)", "× 2,048"),
    ],
)
def test_ratios_are_written_as_fractions(ratio: float, shown: str, root: str, divided: str):
    assert (ratio_text(ratio), root_text(ratio), divided_by(ratio)) == (shown, root, divided)


@dataclass(frozen=True, kw_only=True)
class OwnConfig(RunConfig):
    """An algorithm from outside, whose memory of returns follows the iteration batch."""

    algorithm = "own"
    memory: float = 64.0

    def plan_rows(self, plan: Plan) -> list[PlanRow]:
        row = PlanRow.by_rule(
            "advantage-moments",
            rescale_rules(self.rescale),
            number="memory",
            tuned_at=f"{self.memory:g}",
            this_run=f"{self.memory / plan.ratios.iteration_batch:g}",
            rule=f"{divided_by(plan.ratios.iteration_batch)} (iteration batch)",
            regime="iteration batch",
        )
        return [*super().plan_rows(plan), row]


def test_an_algorithm_from_outside_adds_rows_to_its_plan():
    config = replace(OwnConfig(num_envs=8, num_steps=16).pinned(), num_envs=2)
    said = plan_table(config, make_plan(config, encoder="mlp"))
    assert [(row.number, row.this_run, row.rule) for row in said.rows] == [
        ("learning rate", "0.000125", "× √(1/4) (minibatch)"),
        ("memory", "256", "× 4 (iteration batch)"),
    ]
    assert config.title == "OWN" and not config.stores_observations and config.decoupled() is None
    assert config.stated(make_plan(config, encoder="mlp"))["optimizer"]["learning_rate"] == 1.25e-4
    kept = replace(config, rescale="none")
    assert plan_rows(kept, make_plan(kept, encoder="mlp"))[1].regime == "kept"
