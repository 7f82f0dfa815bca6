"""Study files: what is wrong in one is refused by its name."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_studies import STUDY, changed_text, plan_of

from anybatch.cli.main import main
from anybatch.errors import ConfigError
from anybatch.lab import verdicts
from anybatch.lab.studies import files
from anybatch.lab.studies.plan import Request, make_plan

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


def test_a_ratio_is_checked_by_optimized_code_too():
    asked = "from anybatch.lab.studies.files import ratio; ratio('-1/4', 'here')"
    done = subprocess.run([sys.executable, "-O", "-c", asked], capture_output=True, text=True, check=False)
    assert "here: the ratio '-1/4' must be a positive fraction" in done.stderr


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
        (
            'title = "Small"',
            'title = "Small"\nmetric = "area"',
            "verdicts are judged by final return and area",
        ),
        ("seeds = [1, 2]", "seeds = 2", "seeds = 2 must be a list of whole numbers"),
        ("seeds = [1, 2]", "seeds = []", "seeds = [] must be a list of whole numbers, at least one"),
        ('arms = ["all", "none"]', 'arms = ["every"]', "there is no 'every'; the names are all, none"),
        ('base = "toy"', 'base = "game"', "base = 'game' must be one of toy"),
        ('ratios = ["1", "1/4"]', 'ratios = ["0"]', "the ratio '0' must be a positive fraction"),
        ("total_env_steps = 192", "total_env_steps = -1", "a whole number, at least 1"),
        ("total_env_steps = 192", "total_env_steps = 0", "total_env_steps = 0 must be a whole number"),
        ("seeds = [1, 2]", "seeds = [2, 1, 2]", "seeds = [2, 1, 2] must not repeat 2"),
        ("seeds = [1, 2]", "seeds = [-1]", "must be a list of whole numbers that are not negative"),
        ('envs = ["toy:Match"]', 'envs = ["a", "a"]', "envs = ['a', 'a'] must not repeat 'a'"),
        ("[0.5, 1, 2]", '["high"]', "optimizer.learning_rate = ['high'] must be a list of positive numbers"),
        ("[0.5, 1, 2]", "[0, 1]", "optimizer.learning_rate = [0, 1] must be a list of positive numbers"),
        ('title = "Small"', 'title = "Small"\nthreads = 0', "threads = 0 must be a whole number, at least 1"),
        ('"toy:Lines" = [0, 10]', '"toy:Lines" = [nan, 1]', "must be a list of 2 numbers"),
        ('{ arm = "all" }', '{ arm = "every" }', "reference: arm = 'every' must be one of all, none"),
        ("[arms.none]", "[arms.random]", "the name random is taken by random play"),
        (
            '[arms.all]\ntitle = "all rules"',
            '[arms]\nall = "all rules"',
            "arms.all = 'all rules': must be a table",
        ),
        ('title = "Small"', "title = Small", "study small: Invalid value"),
        ('title = "Small"', 'title = ""', "study small: title = '' must be a string that is not empty"),
        ('claim = "It runs."', 'claim = ""', "study small: claim = '' must be a string that is not empty"),
        ('title = "no rule"', 'title = ""', "arms.none: title = '' must be a string that is not empty"),
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
        (
            'control = { arm = "none" }',
            "",
            "verdicts[1]: rule = equivalent needs a control, cells that must fail the same test, such as "
            'control = { arm = "none" }',
        ),
        ('control = { arm = "none" }', "control = 3", "control = 3 must be a table"),
        (
            'control = { arm = "none" }',
            'control = { arm = ["none", "all"] }',
            "verdicts[1].control: a control is one arm at one ratio, not several",
        ),
        ("margin = 0.1", "margin = { end = 0.1 }", "margin: there is no field end"),
        ("margin = 0.1", "margin = { area = -1 }", "margin: area = -1 must be a number that is not negative"),
        ("margin = 0.1", "margin = 0.1\nmargins = 1", "there is no field margins; did you mean margin?"),
        ("margin = 0.1", "margin = 0.1\nnotch = 2", "there is no field notch"),
        ('that = { ratio = "1" }', 'that = { ratio = "x" }', "the ratio 'x' must be a fraction"),
        ('this = { arm = "all", ratio = "1/4" }', 'this = { ratio = "1/4" }', "this: arm is missing"),
        (
            'that = { ratio = "1" }',
            'that = { ratios = "1" }',
            "that: there is no field ratios; did you mean ratio?",
        ),
        (
            'arm = "all", ratio',
            "arm = [], ratio",
            "study small.verdicts[1].this: arm = [] must name at least one",
        ),
        (
            'that = { ratio = "1" }',
            "that = { ratio = [] }",
            "verdicts[1].that: ratio = [] must name at least one",
        ),
        ('that = { ratio = "1" }', "that = { point = 3 }", "verdicts[1].that.point = 3: must be a table"),
        ('that = { ratio = "1" }', 'that = { factors = "x" }', "that.factors = 'x': must be a table"),
        ('that = { ratio = "1" }', "that = { ratio = inf }", "that: the ratio inf must be a fraction"),
        (
            'claim = "Smaller batches equal the base."',
            'claim = " "',
            "study small.verdicts[1]: claim = ' ' must be a string that is not empty",
        ),
    ],
)
def test_a_wrong_rule_is_said(there: str, here: str, said: str):
    study = files.parse("small", changed_text((there, here)))
    with pytest.raises(ConfigError) as refused:
        verdicts.parse(study.verdicts, "study small")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        ('arm = "all", ratio', 'arm = "al", ratio', "there is no arm 'al'; the names are all, none"),
        (
            'that = { ratio = "1" }',
            'that = { arm = "non" }',
            "there is no arm 'non'; the names are all, none",
        ),
        ('ratio = "1/4" }', 'ratio = "1/4", base = "x" }', "there is no base 'x'; the names are toy"),
        ('"all", ratio = "1/4"', '"all", ratio = "1/8"', "has the cells of arm all at ratio 1/8"),
        ('that = { ratio = "1" }', "that = {}", "this and that are the same cells"),
        ("margin = 0.1", "margin = 0", "margin = 0 must be positive"),
        ('control = { arm = "none" }', 'control = { arm = "nil" }', "there is no arm 'nil'"),
        (
            'control = { arm = "none" }',
            'control = { ratio = "1/2" }',
            "no grid of any scale has the cells of its control, arm all at ratio 1/2",
        ),
        (
            'control = { arm = "none" }',
            'control = { ratio = "1/4" }',
            "the control is one of the two sides that it is to be the control of",
        ),
        ("margin = 0.1", "margin = 0.1\nalpha = 0.5", "alpha = 0.5 must be between 0 and 0.5"),
        ('name = "invariance"', 'name = "../it"', "the name '../it' must consist of letters, digits"),
    ],
)
def test_a_rule_that_does_not_fit_its_study_is_refused_before_anything_is_run(
    there: str, here: str, said: str
):
    with pytest.raises(ConfigError) as refused:
        verdicts.validate_rules(files.parse("small", changed_text((there, here))))
    assert said in str(refused.value) and "study small.verdicts[1]: " in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('rule = "estimate"\nmetric = "batch/nois"', "cells keep no metric batch/nois; they keep batch/iter"),
        ('rule = "estimate"\nmetric = "batch/noise_scale"\nshare = 2', "share = 2 must be above 0 and at"),
        (
            'rule = "foretold"\nthat = { ratio = "1" }\ncontrol = { arm = "none" }\nwithin = 1',
            "within = 1 must be a factor above 1",
        ),
        (
            'rule = "regret"\nthat = { arm = "none" }\nmargin = 0.1\nsetting = "optimizer.lr"',
            "has the cells of arm none at ratio 1/4, factors of optimizer.lr",
        ),
    ],
)
def test_a_rule_about_a_metric_or_setting_that_cells_lack_is_refused(rule: str, said: str):
    written = (
        'rule = "equivalent"\nthis = { arm = "all", ratio = "1/4" }\nthat = { ratio = "1" }\n'
        'control = { arm = "none" }\nmargin = 0.1'
    )
    there = f'this = {{ arm = "all", ratio = "1/4" }}\n{rule}'
    with pytest.raises(ConfigError) as refused:
        verdicts.validate_rules(files.parse("small", changed_text((written, there))))
    assert said in str(refused.value)


def test_two_verdicts_of_one_name_are_refused():
    text = STUDY + STUDY[STUDY.index("[[verdicts]]") :]
    with pytest.raises(ConfigError, match=r"verdicts\[2\]: another verdict has the name 'invariance'"):
        verdicts.validate_rules(files.parse("small", text))


def test_a_tuning_without_factors_is_refused():
    there = 'factors = { "optimizer.learning_rate" = [0.5, 1, 2] }'
    text = changed_text((there, 'sweep = { "optimizer.learning_rate" = [1e-3, 2e-3] }'))
    with pytest.raises(ConfigError, match=r"scales\.cpu\.tune\[1\]: factors are missing"):
        verdicts.validate_rules(files.parse("small", text))


@pytest.mark.parametrize("name", files.names())
def test_the_rules_of_every_study_fit_it(name: str):
    verdicts.validate_rules(files.load(name))


def test_a_study_without_a_run_of_its_reference_is_refused():
    away = ('reference = { arm = "all" }', 'reference = { arm = "all", ratio = "1/2" }')
    with pytest.raises(ConfigError, match=r"no cell of its reference, arm all at ratio 1/2, in toy:Match"):
        plan_of(away)


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


def test_studies_that_take_their_bases_from_each_other_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def write(name: str, base_of: str) -> None:
        text = changed_text(('preset = "cartpole-ppo-ewma"', f'study = "{base_of}"'))
        (tmp_path / name).write_text(text)

    monkeypatch.chdir(tmp_path)
    write("mine.toml", "./mine.toml")
    with pytest.raises(ConfigError) as refused:
        files.load("mine.toml")
    assert str(refused.value) == ("study mine.bases.toy: study ./mine.toml takes its bases from this one")
    write("first.toml", "second.toml")
    write("second.toml", str(tmp_path / "first.toml"))
    with pytest.raises(
        ConfigError, match=r"study second\.bases\.toy: study .*first\.toml takes its bases from"
    ):
        files.load("first.toml")


def test_an_unknown_environment_of_a_study_file_is_refused_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "small.toml"
    path.write_text(changed_text(('envs = ["toy:Match"]', 'envs = ["toy:Mach"]')))
    with pytest.raises(SystemExit) as refused:
        main(["study", str(path), "--plan"])
    assert refused.value.code == 2 and "there is no environment toy:Mach" in capsys.readouterr().err
