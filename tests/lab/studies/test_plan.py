"""Plans: what is run, what is left out, and when two of them are the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_studies import plan_of, study

from anybatch import presets
from anybatch.errors import ConfigError, UserError
from anybatch.lab.studies import files, opening
from anybatch.lab.studies.duration import kind, makespan
from anybatch.lab.studies.plan import Request, StudyPlan, make_plan

SILENT = {"jobs": 1}


def test_a_plan_has_a_cell_for_each_arm_ratio_and_seed_and_random_play():
    cells = plan_of().cells
    assert [cell.name for cell in cells] == [
        "toy-Match__random",
        *(
            f"toy-Match__{arm}__{ratio}__s{seed}"
            for arm in ("all", "none")
            for ratio in ("r1", "r1-4")
            for seed in (1, 2)
        ),
    ]
    smaller = next(cell for cell in cells if cell.ratio == "1/4" and cell.arm == "none" and cell.seed == 2)
    assert smaller.config["num_envs"] == 1 and smaller.config["rescale"] == "none"
    assert smaller.config["tuned_at"]["num_envs"] == 4 and smaller.config["seed"] == 2
    assert smaller.config["threads"] == 1 and smaller.config["env_config"]["engine_threads"] == 1


def test_minibatches_follow_where_an_arm_says_so():
    found = plan_of(
        ('settings = { rescale = "none" }', 'settings = { rescale = "none" }\nminibatches = "follow"'),
        ('ratios = ["1", "1/4"]', 'ratios = ["1", "1/2"]'),
    )
    half = next(cell for cell in found.cells if cell.arm == "none" and cell.ratio == "1/2")
    assert (half.config["num_envs"], half.config["update"]["minibatches_per_epoch"]) == (2, 1)


def test_what_the_batch_cannot_reach_is_left_out_and_named():
    found = plan_of(('ratios = ["1", "1/4"]', 'ratios = ["1", "1/8"]'))
    assert {cell.ratio for cell in found.cells} == {"1"}
    assert [(entry.env, entry.arm, entry.ratio, entry.cause) for entry in found.left_out] == [
        ("toy:Match", "all", "1/8", "ratio"),
        ("toy:Match", "none", "1/8", "ratio"),
    ]
    assert found.left_out[0].reason == "1/8 of 4 envs is not a whole number"
    with pytest.raises(ConfigError, match="no cell left: 1/8 of 4 envs"):
        plan_of(('ratios = ["1", "1/4"]', 'ratios = ["1/8"]'))


def test_factors_multiply_and_sweeps_replace():
    found = plan_of(tune=True)
    base = found.cells[1].config["optimizer"]["learning_rate"] / 0.5
    rates = {
        cell.factors["optimizer.learning_rate"]: cell.config["optimizer"]["learning_rate"]
        for cell in found.cells[1:]
    }
    assert rates == {0.5: base / 2, 1: base, 2: 2 * base}
    swept = plan_of(('arms = ["all", "none"]', 'arms = ["all"]\nsweep = { "update.epochs" = [1, 3] }'))
    assert {cell.config["update"]["epochs"] for cell in swept.cells[1:]} == {1, 3}
    assert swept.cells[1].point == {"update.epochs": 1} and "epochs-1" in swept.cells[1].name


def test_values_that_differ_only_in_late_digits_have_cells_of_their_own():
    def names(values: str) -> list[str]:
        grid = f'arms = ["all"]\nseeds = [1]\nsweep = {{ "proximal.ewma_decay" = {values} }}'
        found = plan_of(('arms = ["all", "none"]', grid), ('ratios = ["1", "1/4"]', ""))
        return [cell.name.partition("ewma_decay-")[2] for cell in found.cells if cell.point]

    assert names("[0.9411764705882353, 0.5]") == ["0.941176__s1", "0.5__s1"]  # as in recorded studies
    assert names("[0.9999999, 0.9999998, 0.5]") == ["0.9999999__s1", "0.9999998__s1", "0.5__s1"]


def test_two_grids_may_share_cells_but_not_give_one_name_to_two_runs():
    def with_grid(*lines: str) -> tuple[str, str]:
        return "[[scales.cpu.tune]]", "\n".join(["[[scales.cpu.grid]]", *lines, "[[scales.cpu.tune]]"])

    shared = plan_of(with_grid('arms = ["all"]', "seeds = [2, 3]"))
    assert [cell.part for cell in shared.cells if cell.arm == "all" and cell.ratio == "1"] == [1, 1, 2]
    with pytest.raises(ConfigError) as refused:
        plan_of(with_grid('arms = ["all"]', "total_env_steps = 500"))
    assert str(refused.value) == (
        "two cells would have the name toy-Match__all__r1__s1, one with total_env_steps = 192 and one with "
        "500: give one of them another arm or other seeds"
    )


def test_a_name_that_no_folder_can_have_is_refused_with_advice():
    with pytest.raises(ConfigError, match=r"a cell has an invalid name.*; give its arm a shorter one"):
        plan_of(*arm_named("a" * 100))
    with pytest.raises(ConfigError, match=r"a cell has an invalid name.* in ASCII letters, without äβ$"):
        plan_of(*arm_named("äβä"))


def arm_named(name: str) -> list[tuple[str, str]]:
    """Changes that give another name to the arm without a rule."""
    return [("[arms.none]", f'[arms."{name}"]'), ('arms = ["all", "none"]', f'arms = ["all", "{name}"]')]


def test_the_number_of_seeds_can_be_asked_for():
    def seeds(count: int) -> list[int]:
        return sorted({cell.seed for cell in plan_of(seeds=count).cells})

    assert seeds(1) == [1] and seeds(2) == [1, 2] and seeds(4) == [1, 2, 3, 4]
    tuning = plan_of(seeds=4, tune=True).cells  # no seed of the study itself
    assert {cell.seed for cell in tuning if cell.factors} == {101, 102, 103, 104}


def test_another_environment_of_the_family_keeps_the_base_and_one_of_another_has_its_preset():
    study = files.load("invariance")
    seaquest = make_plan(study, Request(study="invariance", envs=("minatar:Seaquest",), ranges=(0, 9)))
    assert seaquest.cells[1].config["optimizer"]["learning_rate"] == 2e-3
    known: dict[str, Any] = {"study": "invariance", "envs": ("Acrobot-v1",), "ranges": (-500, -80)}
    acrobot = make_plan(study, Request(**known))
    assert acrobot.ranges == {"Acrobot-v1": (-500, -80)}
    config = acrobot.cells[1].config
    assert (config["env"], config["num_envs"], config["update"]["epochs"]) == ("Acrobot-v1", 16, 1)
    assert config["network"]["encoder"] == "mlp" and config["total_env_steps"] == 200_000
    assert {cell.ratio for cell in acrobot.cells} == {"4", "1", "1/4", "1/8"} and not acrobot.left_out
    smoke = make_plan(study, Request(**known, scale="smoke"))
    assert any("1/32 of 16 envs" in entry.reason for entry in smoke.left_out)
    vector = make_plan(study, Request(**known, preset="vector-ppo-ewma"))
    assert vector.cells[1].config["normalize"]["observations"] == "iteration"


def test_a_requested_preset_is_the_base_of_the_studys_own_environments_too():
    request = Request(study="invariance", envs=("minatar:Breakout",), preset="minatar-ppo-ewma")
    config = make_plan(files.load("invariance"), request).cells[1].config
    assert (
        config["optimizer"]["learning_rate"]
        == presets.load("minatar-ppo-ewma").config.optimizer.learning_rate
    )
    assert config["optimizer"]["learning_rate"] != 2e-3  # that of the study


def test_every_environment_has_one_cell_of_random_play_that_the_reference_must_beat():
    paper = make_plan(files.load("invariance"), Request(study="invariance", scale="paper"))
    assert paper.ranges == {}  # published
    for found in (paper, plan_of(), plan_of(tune=True)):
        random = [cell.env for cell in found.cells if cell.arm == "random"]
        assert sorted(random) == sorted({cell.env for cell in found.cells})


def test_returns_without_a_fixed_scale_are_refused_except_where_they_are_tuned():
    without = ('"toy:Match" = [0, 10]\n', "")
    with pytest.raises(ConfigError) as refused:
        plan_of(without)
    assert str(refused.value) == (
        'study small has no fixed scale for returns in toy:Match: add [ranges] with "toy:Match" = [LOW, HIGH]'
        ", those of random play and of the tuned base, which `--tune` prints"
    )
    assert plan_of(without, tune=True).ranges == {}
    with pytest.raises(
        ConfigError, match=r"in toy:Corridor: add --range with the returns of toy:Corridor, those of"
    ):
        plan_of(envs=("toy:Corridor",))
    assert plan_of(envs=("toy:Corridor",), ranges=(0, 5)).ranges == {"toy:Corridor": (0, 5)}


def test_the_hash_is_of_what_decides_the_results():
    assert plan_of().hash == plan_of(seeds=2).hash
    assert plan_of().hash == plan_of(('title = "Small"', 'title = "Little"')).hash  # words may be improved
    others = [
        plan_of(seeds=1),
        plan_of(("margin = 0.1", "margin = 0.2")),
        plan_of(("num_steps = 8", "num_steps = 9")),
        plan_of(('"toy:Match" = [0, 10]', '"toy:Match" = [0, 9]')),
    ]
    assert len({found.hash for found in [plan_of(), *others]}) == 5


def test_a_plan_that_is_read_back_is_the_same(tmp_path: Path):
    written = opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)
    assert StudyPlan.read(tmp_path) == written
    assert StudyPlan.read(tmp_path / "elsewhere") is None


def test_a_folder_of_another_plan_is_refused_with_the_difference(tmp_path: Path):
    opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)
    before = (tmp_path / "plan.json").read_bytes()
    with pytest.raises(
        UserError,
        match=r"plan: verdicts\.invariance\.margin is 0\.1 in the folder, 0\.2 requested; cells\.toy-Match",
    ) as refused:
        changes = (("margin = 0.1", "margin = 0.2"), ("seeds = [1, 2]", "seeds = [1]"))
        opening.open_study(study(*changes), Request(study="small"), tmp_path, **SILENT)
    assert "is in the folder but was not requested" in str(refused.value) and "--out" in str(refused.value)
    with pytest.raises(UserError, match=r"s1\.config\.num_steps is 8 in the folder, 9 requested"):
        opening.open_study(
            study(("num_steps = 8", "num_steps = 9")), Request(study="small"), tmp_path, **SILENT
        )
    assert (tmp_path / "plan.json").read_bytes() == before


def test_a_part_that_is_left_out_and_another_order_are_named_as_differences(tmp_path: Path):
    smaller = ('ratios = ["1", "1/4"]', 'ratios = ["1", "1/2", "1/4", "1/8"]')
    turned = ('ratios = ["1", "1/4"]', 'ratios = ["1", "1/4", "1/2", "1/8"]')
    opening.open_study(study(smaller), Request(study="small"), tmp_path, **SILENT)
    with pytest.raises(
        UserError, match=r"left_out\.no rule at ratio 1/8 in toy:Match is in the folder but was not req"
    ):
        only_all = ('arms = ["all", "none"]', 'arms = ["all"]')
        opening.open_study(study(smaller, only_all), Request(study="small"), tmp_path, **SILENT)
    with pytest.raises(UserError, match="its lists are in another order"):
        opening.open_study(study(turned), Request(study="small"), tmp_path, **SILENT)


def test_a_plan_that_was_edited_or_damaged_is_refused(tmp_path: Path):
    opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)
    path = tmp_path / "plan.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"metric": "final"}))
    with pytest.raises(UserError, match="was changed after it was written"):
        StudyPlan.read(tmp_path)
    path.write_text(json.dumps({"schema": 1}))
    with pytest.raises(UserError, match="is not the plan of a study"):
        StudyPlan.read(tmp_path)
    path.write_text(json.dumps(data | {"schema": 9}))
    with pytest.raises(UserError, match="has schema 9; this version reads schema 1"):
        StudyPlan.read(tmp_path)


def test_a_copy_of_the_package_is_kept_and_must_not_change(tmp_path: Path):
    made = opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)
    copy = tmp_path / "source" / "anybatch" / "lab" / "studies" / "runner.py"
    assert copy.read_bytes() == Path(files.__file__).with_name("runner.py").read_bytes()
    assert made.facts["source"] and made.facts["torch"] and made.facts["anybatch"]
    copy.write_text("# something else")
    with pytest.raises(UserError, match="is not the source that the plan was made with"):
        opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)
    with pytest.raises(UserError, match="with the package of commit 4af1, or choose another folder"):
        opening.restore(tmp_path, {"source": "another", "git_commit": "4af1"})


def test_a_folder_of_the_user_keeps_its_files(tmp_path: Path):
    ignored = tmp_path / ".gitignore"
    ignored.write_text("*.png\nruns/\n*.csv")
    opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)
    assert ignored.read_text().splitlines() == ["*.png", "runs/", "*.csv", "source/", "log.txt", "lock"]
    before = ignored.read_bytes()
    (tmp_path / "plan.json").unlink()
    opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)  # as after a kill
    assert ignored.read_bytes() == before


def test_a_source_folder_of_the_user_is_not_removed(tmp_path: Path):
    mine = tmp_path / "source" / "anybatch" / "api.py"
    mine.parent.mkdir(parents=True)
    mine.write_text("# my own fork")
    with pytest.raises(UserError, match=r"source/anybatch/api\.py is not a copy of this package"):
        opening.open_study(study(), Request(study="small"), tmp_path, **SILENT)
    assert mine.read_text() == "# my own fork" and not (tmp_path / "plan.json").exists()
    mine.write_bytes((opening.PACKAGE / "api.py").read_bytes()[:100])  # a copy that a kill cut short
    assert opening.open_study(study(), Request(study="small"), tmp_path, **SILENT).facts["source"]


def test_a_kind_of_cells_shares_all_that_takes_time():
    def kinds(*changes: tuple[str, str], **request: Any) -> int:
        return len({kind(cell) for cell in plan_of(*changes, **request).cells if cell.arm != "random"})

    def arm(settings: str) -> int:
        return kinds(('settings = { rescale = "none" }', f"settings = {{ {settings} }}"))

    batches = 2
    assert kinds() == batches  # arms without a rule, and seeds, take the same time
    assert arm("optimizer = { learning_rate = 1e-3 }") == arm("total_env_steps = 500") == batches
    assert arm('precision = "bf16"') == arm('proximal = { policy = "behavior" }') == 2 * batches
    assert arm('controller = { kind = "kl" }') == arm("network = { hidden_sizes = [9] }") == 2 * batches
    assert kinds(envs=("toy:Match", "toy:Target")) == 2 * batches
    assert kinds(tune=True) == 1


def test_cells_that_run_side_by_side_take_the_longest_first():
    assert makespan([1, 1, 1, 3], jobs=2) == 3
    assert makespan([2, 2, 2], jobs=2) == 4
    assert makespan([5.0], jobs=3) == 5
