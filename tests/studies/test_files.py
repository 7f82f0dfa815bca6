"""Study files: what is wrong in one is refused by its name."""

import pytest
from small_studies import STUDY, changed_text, plan_of

from anybatch.errors import ConfigError
from anybatch.reports import verdicts
from anybatch.studies import files
from anybatch.studies.plan import Request, make_plan

PAPERS = {"invariance", "transfer", "upward", "staleness", "ewma", "proximal-age", "abs", "critical-batch"}


def refusal(*changes: tuple[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        files.parse("small", changed_text(*changes))
    return str(refused.value)


def test_there_is_a_study_for_each_claim_of_the_papers():
    assert set(files.names()) >= PAPERS


@pytest.mark.parametrize("name", files.names())
def test_every_scale_of_every_study_has_a_plan(name: str):
    study = files.load(name)
    assert "smoke" in study.scales and "cpu" in study.scales
    assert study.source and verdicts.parse(study.verdicts, name)
    for scale, grids in study.scales.items():
        plan = make_plan(study, Request(study=name, scale=scale))
        used = {cell.arm for cell in plan.cells}
        named = {selector.arm for rule in verdicts.parse(study.verdicts, name) for selector in rule.this}
        assert named & used, f"no verdict of {name} is about a cell at scale {scale}"
        if grids.tune:
            tuned = make_plan(study, Request(study=name, scale=scale, tune=True))
            assert {cell.seed for cell in tuned.cells}.isdisjoint(cell.seed for cell in plan.cells)


@pytest.mark.parametrize("name", files.names())
def test_every_arm_of_a_study_is_in_one_of_its_grids_and_every_verdict_names_arms_that_exist(name: str):
    study = files.load(name)
    grids = [grid for scale in study.scales.values() for grid in scale.grid]
    assert {arm for grid in grids for arm in grid.arms} == study.arms.keys()
    for rule in verdicts.parse(study.verdicts, name):
        assert {selector.arm for pair in rule.pairs() for selector in pair} <= study.arms.keys()


def test_an_unknown_study_is_answered_with_the_nearest_names():
    with pytest.raises(ConfigError, match=r"there is no study 'invarience'; did you mean invariance"):
        files.load("invarience")
    with pytest.raises(ConfigError, match=r"there is no study file mine\.toml"):
        files.load("mine.toml")


def test_a_wrong_field_is_named():
    assert refusal(('claim = "It runs."', 'claims = "It runs."')) == (
        "study small: claim is missing (there is claims); it must be a string"
    )
    assert refusal(("seeds = [1, 2]", "seed = [1, 2]")) == (
        "study small.scales.cpu: there is no field seed; did you mean seeds?"
    )
    assert "bases.toy: there is no field presets; did you mean preset?" in refusal(
        ('preset = "cartpole-ppo-ewma"', 'preset = "cartpole-ppo-ewma"\npresets = "x"')
    )


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        ('metric = "area"', 'metric = "end"', "metric = 'end' must be one of area, final"),
        ("seeds = [1, 2]", "seeds = 2", "seeds = 2 must be a list of whole numbers"),
        ("seeds = [1, 2]", "seeds = []", "seeds = [] must be a list of whole numbers, at least one"),
        ('arms = ["all", "none"]', 'arms = ["every"]', "there is no 'every'; the names are all, none"),
        ('base = "toy"', 'base = "game"', "base = 'game' must be one of toy"),
        ('ratios = ["1", "1/4"]', 'ratios = ["0"]', "the ratio '0' must be a positive fraction"),
        ("total_env_steps = 192", "total_env_steps = -1", "a whole number that is not negative"),
        (
            '[arms.all]\ntitle = "all rules"',
            '[arms]\nall = "all rules"',
            "arms.all = 'all rules': must be a table",
        ),
        ('title = "Small"', "title = Small", "study small: Invalid value"),
    ],
)
def test_a_wrong_value_is_said(there: str, here: str, said: str):
    assert said in refusal((there, here))


def test_a_setting_that_does_not_exist_is_named_with_the_cell():
    with pytest.raises(ConfigError, match=r"toy:Match none r1: .*unknown rescal"):
        plan_of(('settings = { rescale = "none" }', 'settings = { rescal = "none" }'))


def test_a_factor_needs_a_number():
    with pytest.raises(ConfigError, match=r"optimizer\.name is not a number that a factor could multiply"):
        plan_of(('"optimizer.learning_rate" = [0.5, 1, 2]', '"optimizer.name" = [0.5, 1, 2]'), tune=True)


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        ('rule = "equivalent"', 'rule = "same"', "rule = 'same' must be one of equivalent, better"),
        ("margin = 0.1", "", "margin is missing; rule = equivalent needs it"),
        ("margin = 0.1", "margin = 0.1\nmargins = 1", "there is no field margins; did you mean margin?"),
        ("margin = 0.1", "margin = 0.1\nnotch = 2", "there is no field notch"),
        ('that = { ratio = "1" }', 'that = { ratio = "x" }', "the ratio 'x' must be a fraction"),
        ('this = { arm = "all", ratio = "1/4" }', 'this = { ratio = "1/4" }', "this: arm is missing"),
        (
            'that = { ratio = "1" }',
            'that = { ratios = "1" }',
            "that: there is no field ratios; did you mean ratio?",
        ),
    ],
)
def test_a_wrong_rule_is_said(there: str, here: str, said: str):
    study = files.parse("small", changed_text((there, here)))
    with pytest.raises(ConfigError) as refused:
        verdicts.parse(study.verdicts, "study small")
    assert said in str(refused.value)


def test_a_base_can_be_that_of_another_study():
    here = files.parse(
        "mine",
        STUDY.replace('[bases.toy]\npreset = "cartpole-ppo-ewma"', '[bases.toy]\nstudy = "invariance"'),
    )
    assert here.bases["toy"].settings["num_envs"] == 4  # its own settings are laid over those of the other
    assert (
        here.bases["toy"].settings["optimizer"] == files.load("invariance").bases["toy"].settings["optimizer"]
    )
    with pytest.raises(ConfigError, match="study invariance has no base game; it has ppo-ewma"):
        files.parse(
            "mine",
            STUDY.replace("bases.toy", "bases.game").replace(
                'preset = "cartpole-ppo-ewma"', 'study = "invariance"'
            ),
        )
