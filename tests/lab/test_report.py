"""`anybatch report` and `anybatch plot` on runs, and the curve at the end of a training."""

import csv
import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_runs import toy_config, train

from anybatch.cli.main import main
from anybatch.errors import UserError
from anybatch.lab.pages import compared, report_files, run_charts
from anybatch.lab.pages.run_charts import NOISE_SCALE, RETURN, at_points, over_runs, run_line


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two batches with two seeds each."""
    base = tmp_path_factory.mktemp("runs")
    for num_envs in (3, 6):
        for seed in (1, 2):
            changes: dict[str, Any] = {"num_envs": num_envs, "seed": seed, "total_env_steps": 400}
            tuned_at = {"num_envs": 3, "num_steps": 7, "minibatches_per_epoch": 2, "epochs": 2}
            folder = train(toy_config(**changes, tuned_at=tuned_at), base).folder
            folder.rename(base / f"envs{num_envs}-seed{seed}")
    return base


def folders(runs: Path) -> list[str]:
    return [str(path) for path in sorted(runs.iterdir())]


def rows(*values: tuple[int, float | None, int]) -> list[dict[str, Any]]:
    return [{"env_steps": steps, RETURN: score, "charts/episodes": count} for steps, score, count in values]


def test_a_point_is_the_mean_over_the_episodes_of_its_part():
    line = run_line(rows((10, 1.0, 1), (20, 4.0, 2), (30, None, 0), (40, 8.0, 1)), RETURN, width=20)
    assert line is not None
    x, mean, low, high = (part.tolist() for part in line)
    assert mean == [3.0, 8.0]  # (1·1 + 2·4) ÷ 3
    assert x == [pytest.approx(50 / 3), 40.0]
    assert (low, high) == ([1.0, 8.0], [4.0, 8.0])


def test_what_was_not_measured_is_no_line():
    assert run_line(rows((10, None, 0)), RETURN, width=20) is None


def noise_rows(*scales: float | None) -> list[dict[str, Any]]:
    """Every second row is measured; without a scale, more than 64 was measured."""
    measured = [
        {"env_steps": 10 * number, NOISE_SCALE: scale, "batch/noise_scale_above": None if scale else 64.0}
        for number, scale in enumerate(scales, 1)
    ]
    return [part for row in measured for part in ({"env_steps": row["env_steps"] - 5}, row)]


def test_a_noise_scale_that_was_lost_in_noise_is_a_gap_and_not_a_line():
    found = run_line(noise_rows(5, 7, None, None, 9), NOISE_SCALE, width=10)
    assert found is not None and found[1].tolist() == [5, 7, math.inf, math.inf, 9]
    assert np.isnan(found[2]).tolist() == [False, False, True, True, False]
    lost = run_line(noise_rows(1, None, None, None, 2), NOISE_SCALE, width=10)
    assert lost is not None
    x, middle, *_ = over_runs([found, found, lost], 50)
    assert np.isinf(middle[(x > 20.5) & (x < 49.5)]).all() and middle[np.searchsorted(x, 10)] < 9


def test_several_runs_are_their_mean_and_range_where_they_have_data():
    def line(*values: float) -> run_charts.Line:
        y = np.array(values)
        return np.linspace(10, 10 * len(y), len(y)), y, y, y

    x, mean, low, high = over_runs([line(1, 1, 1, 1), line(3, 3)], 40)
    both, alone = x <= 20, x > 21  # the shorter run ends at 20
    assert x[0] == 10 and x[-1] == 40
    assert np.allclose(mean[both], 2) and np.allclose(low[both], 1) and np.allclose(high[both], 3)
    assert np.allclose(mean[alone], 1) and np.allclose(high[alone], 1)


def test_runs_that_end_a_step_apart_end_together():
    x = np.linspace(0, 12_000, 121)
    assert at_points(x, np.array([6_000.0, 11_999.0]), np.array([1.0, 2.0]))[-1] == 2
    assert np.isnan(at_points(x, np.array([6_000.0, 11_000.0]), np.array([1.0, 2.0]))[-1])
    assert np.isnan(at_points(x, np.array([6_000.0, 12_000.0]), np.array([1.0, 2.0]))[0])
    assert (~np.isnan(at_points(x, np.array([5_050.0]), np.array([1.0])))).sum() == 1


def test_runs_that_differ_in_their_seeds_only_are_one_line(runs: Path):
    groups = compared.grouped(compared.read_all(map(Path, folders(runs))))
    assert [group.label for group in groups] == ["num-envs 3 (2 runs)", "num-envs 6 (2 runs)"]
    charts = {chart.name: chart for chart in run_charts.charts_of(groups)}
    assert {"return", "batch", "kl", "clip-fraction", "speed"} <= charts.keys()
    assert "divergence" not in charts  # no run has measured it
    batch = [set(series.y) for series in charts["batch"].series]
    assert batch == [{21.0}, {42.0}]


def test_runs_of_several_seeds_are_not_named_after_one_of_them(runs: Path, tmp_path: Path):
    first, second, *_ = map(Path, folders(runs))
    alone = compared.grouped(compared.read_all([first]))
    assert [group.label for group in alone] == ["toy:Match, envs3-seed1"]
    named = compared.grouped(compared.read_all([first, second]))
    assert [group.label for group in named] == ["toy:Match, envs3-seed1, envs3-seed2 (2 runs)"]
    copies = [
        shutil.copytree(run, tmp_path / f"toy-Match__mine__s{seed}__2026010{seed}-120000")
        for seed, run in ((1, first), (2, second), (3, second))
    ]
    (group,) = compared.grouped(compared.read_all(copies))
    assert group.label == "toy:Match, mine (3 runs)"
    (group,) = compared.grouped(compared.read_all([first, *copies]))
    assert group.label == f"toy:Match, envs3-seed1, {copies[0].name}, … (4 runs)"
    # Too many differences for a label.
    other = train(toy_config(num_envs=5, num_steps=9), tmp_path).folder
    groups = compared.grouped(compared.read_all([*copies, other]))
    assert [group.label for group in groups] == ["toy:Match, mine (3 runs)", "toy:Match, test"]


def test_ranks_are_drawn_where_their_number_was_recorded(runs: Path):
    (run,) = compared.read_all([Path(folders(runs)[0])])
    assert "ranks" not in {chart.name for chart in run_charts.charts_of(compared.grouped([run]))}
    rows = [row | {"charts/ranks": 4 if place == 0 else 1} for place, row in enumerate(run.rows)]
    charts = run_charts.charts_of(compared.grouped([replace(run, rows=rows)]))
    (ranks,) = [chart for chart in charts if chart.name == "ranks"]
    assert set(ranks.series[0].y) == {4.0, 1.0}


def test_a_run_named_twice_is_one_run(runs: Path):
    first = Path(folders(runs)[0])
    assert len(compared.read_all([first, first])) == 1


def test_runs_of_two_environments_have_two_charts_of_the_return(runs: Path, tmp_path: Path):
    other = train(toy_config(env="toy:Corridor"), tmp_path).folder
    groups = compared.grouped(compared.read_all([Path(folders(runs)[0]), other]))
    titles = [chart.title for chart in run_charts.charts_of(groups)]
    assert titles[:2] == ["Return, toy:Match", "Return, toy:Corridor"]


def test_the_report_of_runs_is_a_page_with_figures_and_data(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "made"
    main(["report", *folders(runs), "--out", str(out)])
    said = capsys.readouterr().out
    assert str(out / "index.html") in said
    page = (out / "index.html").read_text()
    for shown in ("num-envs 3 (2 runs)", "envs6-seed2", "learning rate", "Commands", "anybatch report"):
        assert shown in page
    assert "http" not in page.replace("http://www.w3.org", "")  # nothing is asked of a network
    names = {path.stem for path in (out / "figures").glob("*.png")}
    assert names == {path.stem for path in (out / "figures").glob("*.svg")} and "return" in names
    assert names | {"metrics"} == {path.stem for path in (out / "data").glob("*.csv")}
    metrics = list(csv.DictReader((out / "data" / "metrics.csv").read_text().splitlines()))
    written = compared.read(Path(folders(runs)[0])).rows
    assert sum(row["run"] == "envs3-seed1" for row in metrics) == len(written)
    assert float(metrics[0]["losses/entropy"]) == written[0]["losses/entropy"]


def test_advice_on_a_page_begins_with_a_capital(runs: Path, tmp_path: Path):
    run = shutil.copytree(folders(runs)[0], tmp_path / "run")
    metrics = run / "metrics.jsonl"
    rows_read = [json.loads(line) for line in metrics.read_text().splitlines()]
    metrics.write_text(
        "".join(json.dumps(row | {"noise/trace": 1.0, "noise/signal": 1.0}) + "\n" for row in rows_read)
    )
    main(["report", str(run)])
    assert "<strong>The minibatch of" in (run / "report" / "index.html").read_text()


def test_the_same_report_twice_is_the_same_page(runs: Path, tmp_path: Path):
    main(["report", folders(runs)[0], "--out", str(tmp_path)])
    page = (tmp_path / "index.html").read_bytes()
    main(["report", folders(runs)[0], "--out", str(tmp_path)])
    assert page == (tmp_path / "index.html").read_bytes()


def test_the_report_of_one_run_is_in_its_folder(runs: Path, tmp_path: Path):
    run = shutil.copytree(folders(runs)[0], tmp_path / "run")
    main(["report", str(run)])
    assert (run / "report" / "index.html").is_file()


def test_a_run_that_has_not_ended_is_shown_as_far_as_it_is(runs: Path, tmp_path: Path):
    run = Path(shutil.copytree(folders(runs)[0], tmp_path / "run"))
    (run / "result.json").unlink()
    main(["report", str(run), "--out", str(tmp_path / "out")])
    assert " so far" in (tmp_path / "out" / "index.html").read_text()


def test_a_name_cannot_become_markup(runs: Path, tmp_path: Path):
    name = "<img src=x onerror=alert(1)> & <!--"
    run = shutil.copytree(folders(runs)[0], tmp_path / name)
    main(["report", str(run), folders(runs)[2], "--out", str(tmp_path / "out")])
    page = (tmp_path / "out" / "index.html").read_text()
    assert "onerror=alert(1)&gt; &amp; &lt;!--" in page
    assert "<img" not in page and "<!--" not in page


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(list(words))
    assert exit_.value.code == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    return said


def test_a_page_that_is_not_ours_stays(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "index.html").write_text("my own page")
    assert "would be lost" in refused(capsys, "report", folders(runs)[0], "--out", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert (tmp_path / "index.html").read_text() == "my own page"


@pytest.mark.parametrize("name", ["data/return.csv", "figures/return.png"])
def test_files_that_are_not_ours_stay(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
):
    mine = tmp_path / name
    mine.parent.mkdir()
    mine.write_text("my own numbers")
    said = refused(capsys, "report", folders(runs)[0], "--out", str(tmp_path))
    assert f"{mine} was not written by anybatch and would be lost" in said
    assert mine.read_text() == "my own numbers" and list(tmp_path.rglob("*.*")) == [mine]
    mine.rename(tmp_path / "mine.txt")
    main(["report", folders(runs)[0], "--out", str(tmp_path)])
    main(["report", folders(runs)[0], "--out", str(tmp_path)])  # now they are those of an earlier report
    assert mine.exists() and (tmp_path / "mine.txt").read_text() == "my own numbers"


def test_a_report_that_was_killed_can_be_made_again(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def killed(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(report_files, "picture", killed)
        main(["report", folders(runs)[0], "--out", str(tmp_path)])
    assert (tmp_path / "data" / "return.csv").exists()
    main(["report", folders(runs)[0], "--out", str(tmp_path)])
    assert (tmp_path / "figures" / "return.png").exists()


def test_what_cannot_be_drawn_is_one_sentence(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run, out = folders(runs)[0], str(tmp_path / "x.png")
    assert "at least one run folder" in refused(capsys, "report")
    assert "at least one run folder" in refused(capsys, "plot", "--out", out)
    assert "there is no folder" in refused(capsys, "report", str(tmp_path / "nowhere"))
    assert "--out curve.png" in refused(capsys, "plot", run)
    assert ".png, .svg or .pdf" in refused(capsys, "plot", run, "--out", str(tmp_path / "x.jpg"))
    said = refused(capsys, "plot", run, "--out", out, "--metric", "losses/clipfraction")
    assert "did you mean losses/clipfrac?" in said
    said = refused(capsys, "plot", run, "--out", out, "--metric", "wurst")
    assert "there is no such metric; metrics.jsonl has their names" in said
    assert "not measured" in refused(capsys, "plot", run, "--out", out, "--metric", "losses/td_loss")
    assert not list(tmp_path.iterdir())


def test_a_run_without_metrics_is_said(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = Path(shutil.copytree(folders(runs)[0], tmp_path / "run"))
    (run / "metrics.jsonl").write_text("")
    assert "no metrics yet" in refused(capsys, "report", str(run))
    main(
        ["report", str(run), folders(runs)[1], "--out", str(tmp_path / "out")]
    )  # beside others, it is listed


def test_a_plot_is_one_picture(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("a.png", "deep/b.svg", "c.pdf"):
        main(["plot", *folders(runs), "--out", str(tmp_path / name)])
    main(["plot", *folders(runs), "--metric", "losses/value_loss", "--out", str(tmp_path / "value.svg")])
    assert (tmp_path / "deep" / "b.svg").read_bytes() != (tmp_path / "value.svg").read_bytes()
    assert capsys.readouterr().out.splitlines()[0] == str(tmp_path / "a.png")


def test_without_matplotlib_there_is_still_a_page(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    main(["report", folders(runs)[0], "--out", str(tmp_path)])
    assert "anybatch[plot]" in capsys.readouterr().out
    assert (tmp_path / "index.html").is_file() and not (tmp_path / "figures").exists()
    said = refused(capsys, "plot", folders(runs)[0], "--out", str(tmp_path / "x.png"))
    assert "matplotlib" in said and "anybatch[plot]" in said


def test_what_is_no_run_and_no_study_is_named(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run, exported = folders(runs)[0], tmp_path / "exported"
    main(["export", run, "--hub", str(exported), "--no-video"])
    capsys.readouterr()
    assert "exported is an exported policy, which has no metrics" in refused(
        capsys, "report", run, str(exported)
    )
    assert "plan.json is not the plan of a study" in refused(capsys, "dial", run)


def test_help_says_how(capsys: pytest.CaptureFixture[str]):
    for command in ("report", "plot"):
        main([command, "--help"])
        assert f"usage: anybatch {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        ("evaluation", 3, "evaluation"),
        ("evaluation", {"mean_return": 1.0}, "standard_error"),
        ("evaluation", {"mean_return": "high", "standard_error": 0.0}, "mean_return"),
        ("training_return", [1], "training_return"),
    ],
)
def test_a_damaged_result_is_named(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], entry: str, value: object, said: str
):
    run = Path(shutil.copytree(folders(runs)[0], tmp_path / "run"))
    result = run / "result.json"
    result.write_text(json.dumps(json.loads(result.read_text()) | {entry: value}))
    assert f"{result} is damaged: a run does not write such {said}" in refused(capsys, "report", str(run))


def test_a_damaged_plan_is_named(runs: Path, tmp_path: Path):
    run = Path(shutil.copytree(folders(runs)[0], tmp_path / "run"))
    (run / "plan.json").write_text(json.dumps([1]))
    with pytest.raises(UserError, match=r"plan\.json is damaged"):
        compared.read(run)
