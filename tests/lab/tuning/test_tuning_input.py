"""What cannot be tuned is refused in a sentence, with exit code 2, and nothing is lost."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_tunings
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tunings import request, run_tuning
from toy_runs import toy_config

import anybatch
from anybatch import presets
from anybatch.cli import main
from anybatch.config.serialization import config_to_dict
from anybatch.dial import make_plan as make_run_plan
from anybatch.errors import ConfigError, UserError
from anybatch.lab.pages import tuning_page
from anybatch.lab.studies import duration
from anybatch.lab.studies.configs import config_of
from anybatch.lab.studies.executor import LocalWorker
from anybatch.lab.tuning import plan as plans
from anybatch.lab.tuning import space, trials
from anybatch.lab.tuning.plan import TuningPlan, at_batch, fresh_seeds, make_plan
from anybatch.lab.tuning.tune import open_tuning
from anybatch.runs import folder as run_folder

SILENT: dict[str, Any] = {"jobs": 1}


def said_by(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence of a refusal."""
    with pytest.raises(SystemExit) as exit_code:
        main(["tune", *words])
    assert exit_code.value.code == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    return sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--trials", "9"), "at least 10 are needed"),
        (("--env", "CartPol-v1"), "CartPole-v1"),
        (("--env", "CartPole-v9"), "there is no environment CartPole-v9"),
        (("--preset", "cartpol"), "there is no preset 'cartpol'"),
        (
            ("--search", "learning-rat=1..2"),
            "there is no number 'learning-rat'; did you mean learning-rate",
        ),
        (("--search", "clip=0.1..0.3", "clip=fixed"), "--search names clip twice"),
        (("--search", "discount=0.9..1.1"), "both ends must be at least 0 and below 1"),
        (("--search", "learning-rate=-1..1"), "both ends must be above 0 and at most 1"),
        (("--search", "learning-rate=0.1..0.01"), "the first end must be below the second"),
        (("--search", "learning-rate=0.1"), "must be learning-rate=LOW..HIGH or learning-rate=fixed"),
        (("--search", "learning-rate=nan..1"), "both ends must be above 0 and at most 1"),
        (("--search", "minibatches=1..2.5"), "both ends must be a whole number of at least 1"),
        (("--search", "minibatches=1..257"), "an iteration has 128 samples"),
        (("--search", "q-lambda=0.1..0.9"), "q-lambda: cannot be searched"),
        (("--search", "proximal-copy-every=2..9"), "proximal.policy = periodic, and this preset has ewma"),
        (("--num-envs", "0"), "--num-envs 0: must be at least 1"),
        (("--jobs", "0"), "--jobs 0: must be at least 1"),
        (("--seeds", "3", "3"), "--seeds 3 3: must be one or more different non-negative"),
        (("--check-seeds", "1"), "at least 2 are needed for an interval"),
        (("--margin", "0"), "--margin 0: must be above 0 and below 1"),
        (("--budget", "soon"), "--budget: 'soon' must be a duration"),
        (("--budget", "0m"), "--budget 0m: must be longer than 0"),
        (("--trails", "9"), "--trails"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    assert sentence in said_by(capsys, *words, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"jobs": 0}, "--jobs 0: must be at least 1"),
        ({"budget": "soon"}, "--budget: 'soon' must be a duration"),
        ({"budget": "0s"}, "--budget 0s: must be longer than 0"),
    ],
)
def test_what_a_program_asks_for_is_refused_before_there_is_a_folder(
    wrong: dict[str, Any], sentence: str, tmp_path: Path
):
    with pytest.raises(ConfigError, match=sentence):
        anybatch.tune("cartpole-ppo-ewma", out=tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


def test_a_missing_optuna_is_said_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "optuna" else there(name))
    said = said_by(capsys, "--out", str(tmp_path / "out"))
    assert "pip install 'anybatch[tune]'" in said and not (tmp_path / "out").exists()


def test_the_folder_of_another_tuning_is_refused_by_what_differs(tmp_path: Path):
    out = tmp_path / "out"
    plan = open_tuning(request(tmp_path), out, **SILENT)
    assert open_tuning(request(tmp_path), out, **SILENT) == plan
    with pytest.raises(UserError, match=r"base.num_envs is 4 in the folder, 8 requested"):
        open_tuning(request(tmp_path, num_envs=8), out, **SILENT)
    with pytest.raises(UserError, match=r"ranges.clip was requested but is not in the folder"):
        open_tuning(request(tmp_path, search=("learning-rate=1e-6..0.05",)), out, **SILENT)
    with pytest.raises(UserError, match=r"margin is 0.1 in the folder, 0.2 requested"):
        open_tuning(request(tmp_path, margin=0.2), out, **SILENT)
    assert TuningPlan.read(out) == plan


def test_more_trials_can_be_asked_for_until_the_check_and_fewer_never(tmp_path: Path):
    out = tmp_path / "out"
    open_tuning(request(tmp_path), out, **SILENT)
    with pytest.raises(UserError, match="was begun with 14 trials, and --trials 12 is less"):
        open_tuning(request(tmp_path, trials=12), out, **SILENT)
    assert open_tuning(request(tmp_path, trials=20), out, **SILENT).trials == 20
    (out / "plan.json").write_text("{}")
    with pytest.raises(UserError, match="its seeds are no longer fresh"):
        open_tuning(request(tmp_path, trials=30), out, **SILENT)


def test_a_tuning_that_is_running_keeps_its_plan(tmp_path: Path):
    out = tmp_path / "out"
    plan = open_tuning(request(tmp_path), out, **SILENT)
    with run_folder.lock(out), pytest.raises(UserError, match="another process is training"):
        run_tuning(request(tmp_path, trials=20), out)
    assert TuningPlan.read(out) == plan


def test_a_refused_tuning_leaves_no_folder(tmp_path: Path):
    with pytest.raises(UserError):
        run_tuning(request(tmp_path, env="toy:Nothing"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_of_a_long_budget_can_be_read_again(tmp_path: Path):
    made = made_tunings.outcome_in(tmp_path)
    plan = replace(made.plan, request=replace(made.plan.request, budget_seconds=duration.seconds("14d")))
    words = replace(made, plan=plan).tune_words()
    assert words[words.index("--budget") + 1] == "1209600s"


@pytest.mark.parametrize(("tuned", "is_worse"), [(0.6, True), (0.85, True), (1.0, False), (1.4, False)])
def test_a_tuned_preset_that_is_measured_to_be_worse_is_called_worse_and_not_recommended(
    tuned: float,
    is_worse: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    made = made_tunings.outcome_in(tmp_path, tuned=tuned)
    monkeypatch.setattr("anybatch.api.tune", lambda *_, **__: made)
    main(["tune"])
    said = capsys.readouterr().out
    assert made.is_worse == ("check   worse: " in said) == is_worse
    assert ("keep the original, or tune with more trials" in said) == is_worse
    assert ("anybatch train" in said) != is_worse
    page = tuning_page.report(made).page
    assert ("worse than the original here" in page) == ("although it did worse" in page) == is_worse
    assert made.to_json()["is_worse"] == is_worse


def test_the_commands_of_a_tuning_name_what_a_preset_alone_may_not(tmp_path: Path):
    made = made_tunings.outcome_in(tmp_path)
    network = made.plan.original["network"] | {"factory": "my_nets:wide"}
    plan = replace(
        made.plan,
        original=made.plan.original | {"network": network},
        request=replace(made.plan.request, env="my_envs:Mine-v0"),
    )
    named = ["--env", "my_envs:Mine-v0", "--network.factory", "my_nets:wide"]
    assert replace(made, plan=plan).train_words()[-4:] == named
    words = replace(made, plan=plan).tune_words()
    assert all(" ".join(pair) in " ".join(words) for pair in (named[:2], named[2:]))
    assert not {"--env", "--network.factory"} & {*made.train_words(), *made.tune_words()}


def test_a_study_or_a_damaged_plan_in_the_folder_is_refused(tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "plan.json").write_text("{}")
    with pytest.raises(UserError, match="is the folder of a study"):
        open_tuning(request(tmp_path), out, **SILENT)
    (out / "plan.json").unlink()
    open_tuning(request(tmp_path), out, **SILENT)
    text = (out / "tuning.json").read_text()
    (out / "tuning.json").write_text(text.replace('"margin": 0.1', '"margin": 0.5', 1))
    with pytest.raises(UserError, match="was changed after it was written"):
        open_tuning(request(tmp_path), out, **SILENT)
    (out / "tuning.json").write_text("{}")
    with pytest.raises(UserError, match="is not the plan of a tuning"):
        open_tuning(request(tmp_path), out, **SILENT)


def test_a_budget_says_how_many_trials_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
):
    # A run is 1,024 env steps and 5 s beside: 10 s. The check has four of them.
    monkeypatch.setattr(LocalWorker, "ask", lambda *_, **__: {"answer": "done", "seconds": 5 / 1024})
    asked = request(tmp_path, budget_seconds=160.0)
    plan = open_tuning(asked, tmp_path / "out", jobs=1)
    assert plan.trials == 12
    assert "A trial takes about 10 s, the final check 40 s: 12 of 14 trials fit into 3 min" in logged[-1]
    monkeypatch.setattr(LocalWorker, "ask", lambda *_, **__: {"answer": "done", "seconds": 1.0})
    assert open_tuning(asked, tmp_path / "out", jobs=1) == plan
    with pytest.raises(ConfigError, match="at least 10 trials are needed"):
        open_tuning(asked, tmp_path / "other", jobs=1)
    assert not (tmp_path / "other").exists()


def test_a_budget_is_measured_on_real_runs(tmp_path: Path, logged: list[str]):
    plan = open_tuning(request(tmp_path, budget_seconds=1e6), tmp_path / "out", jobs=1)
    assert plan.trials == 14 and "all 14 trials fit into 12 days" in logged[-1]


@given(st.sets(st.integers(0, 2**31), min_size=1, max_size=5), st.integers(2, 20))
def test_no_seed_of_the_check_is_one_of_tuning(tuning: set[int], count: int):
    fresh = fresh_seeds(tuple(tuning), count)
    assert len(set(fresh)) == count and not tuning & set(fresh)


@pytest.mark.parametrize("name", presets.names())
def test_the_center_of_the_search_is_what_the_dial_gives_at_the_batch_tuned_at(name: str):
    config = presets.load(name).config
    settings = {"algorithm": config.algorithm} | config_to_dict(config)
    num_envs = max(1, config.num_envs // 4)
    stated = config_of(at_batch(settings, num_envs, name), name)
    by_the_dial = make_run_plan(config_of(settings | {"num_envs": num_envs}, name), encoder="mlp")
    here = make_run_plan(stated, encoder="mlp")
    assert here.ratios.are_one
    assert here.hyperparameters.learning_rate == pytest.approx(by_the_dial.hyperparameters.learning_rate)
    if getattr(config.objective, "advantage_normalization", None) == "iteration":
        decay = by_the_dial.hyperparameters.advantage_decay
        assert here.hyperparameters.advantage_decay == pytest.approx(decay)
    if here.phase is not None and by_the_dial.phase is not None:
        assert here.phase.policy_iterations == by_the_dial.phase.policy_iterations
        assert here.phase.auxiliary_learning_rate == pytest.approx(by_the_dial.phase.auxiliary_learning_rate)
    if getattr(config, "proximal", None) is not None and config.proximal.policy == "ewma":  # type: ignore[union-attr]
        assert here.hyperparameters.proximal_decay == pytest.approx(
            by_the_dial.hyperparameters.proximal_decay
        )


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("policy", ["ewma", "periodic"])
def test_the_age_of_the_proximal_policy_is_that_of_the_dial_whatever_decides_it(policy: str, lag: int):
    config = toy_config(
        num_envs=8,
        proximal={"policy": policy},
        staleness={"iterations": lag, "proximal_age": "half_lag"},
    )
    settings = {"algorithm": config.algorithm} | config_to_dict(config)
    by_the_dial = make_run_plan(config_of(settings | {"num_envs": 2}, "here"), encoder="mlp")
    here = make_run_plan(config_of(at_batch(settings, 2, "here"), "here"), encoder="mlp")
    number = {"ewma": "proximal_decay", "periodic": "proximal_copy_every"}[policy]
    assert getattr(here.hyperparameters, number) == getattr(by_the_dial.hyperparameters, number)


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_has_a_search_with_its_own_numbers_inside(name: str):
    plan = make_plan(plans.Request(preset=name))
    assert "learning-rate" in {one.name for one in plan.ranges}
    first = plan.numbers({one.name: one.first for one in plan.ranges})
    for one in plan.ranges:
        assert one.low < one.high and one.low <= first[one.name] <= one.high
        assert first[one.name] == pytest.approx(one.center, rel=1e-3)
    config_of(plan.settings_of(first, name), name)
    for ends in ("low", "high"):  # the corners can be run too
        config_of(plan.settings_of({one.name: getattr(one, ends) for one in plan.ranges}, name), name)


def test_what_an_algorithm_does_not_have_is_not_searched():
    names = {one.name for one in make_plan(plans.Request(preset="minatar-pqn")).ranges}
    assert {"q-lambda", "exploration-end"} <= names
    assert not names & {"gae-lambda", "clip", "entropy-coefficient", "proximal-center-of-mass"}
    ppg = {one.name for one in make_plan(plans.Request(preset="procgen-small-ppg")).ranges}
    assert "auxiliary-learning-rate" in ppg


def test_the_first_trial_has_the_nearest_end_of_a_range_that_leaves_the_preset_out():
    asked = plans.Request(preset="cartpole-ppo-ewma", search=("discount=0.9..0.95", "clip=0.3..0.4"))
    ranges = {one.name: one for one in make_plan(asked).ranges}
    assert ranges["discount"].number(ranges["discount"].first) == pytest.approx(0.95)
    assert ranges["clip"].number(ranges["clip"].first) == pytest.approx(0.3)


def test_more_minibatches_rescale_what_follows_them():
    plan = make_plan(plans.Request(preset="cartpole-ppo-ewma"))
    point = {one.name: one.center for one in plan.ranges}
    one = plan.settings_of(point, "one")
    four = plan.settings_of(point | {"minibatches": 4 * point["minibatches"]}, "four")
    assert four["optimizer"]["learning_rate"] == pytest.approx(one["optimizer"]["learning_rate"] / 2)
    assert four["tuned_at"]["minibatches_per_epoch"] == 4 * one["tuned_at"]["minibatches_per_epoch"]


def test_a_journal_that_was_cut_within_a_line_continues_with_what_was_whole(tmp_path: Path):
    out = tmp_path / "out"
    plan = open_tuning(request(tmp_path), out, **SILENT)
    book = trials.TrialBook(out, plan)
    first, second = book.next(), book.next()
    assert first is not None and second is not None
    book.finish(0, "finished", 1.0)
    journal = out / trials.JOURNAL_FILE
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 6, "wor')
    again = trials.TrialBook(out, plan)
    assert again.next() == second
    third = again.next()
    assert third is not None and third.number == 2 and third.point != second.point


def test_reading_the_trials_writes_nothing_even_while_they_run(tmp_path: Path):
    out = tmp_path / "out"
    plan = open_tuning(request(tmp_path), out, **SILENT)
    journal = out / trials.JOURNAL_FILE
    with pytest.raises(UserError, match=r"out/trials\.journal is missing: it holds the trials"):
        trials.read(out, plan)
    assert not journal.exists()
    journal.touch()
    with pytest.raises(UserError, match=r"out/trials\.journal is damaged"):
        trials.read(out, plan)
    assert journal.read_bytes() == b""
    book = trials.TrialBook(out, plan)
    assert trials.read(out, plan) == []
    book.next()
    book.report(0, 3, 1.5)
    before = journal.read_bytes() + b'{"op_code": 6, "wor'  # a line that is being written
    journal.write_bytes(before)
    (trial,) = trials.read(out, plan)
    assert trial == book.trial(0) and trial.reports == {3: 1.5}
    assert journal.read_bytes() == before


def test_what_matters_is_found(tmp_path: Path):
    found = made_tunings.outcome_in(tmp_path).importances
    assert max(found, key=lambda name: found[name]) == "learning-rate"
    assert sum(found.values()) == pytest.approx(1)


def test_names_in_the_help_of_search_are_those_that_there_are():
    from anybatch.cli.lab_flags import TuneFlags
    from anybatch.cli.parser import documented

    told = documented(TuneFlags)["search"]
    assert all(dimension.name in told for dimension in space.DIMENSIONS)
