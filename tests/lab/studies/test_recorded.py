"""Recorded files: what a study or a tuning leaves in one file, and what is refused in a sentence."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_studies
import pytest
from made_studies import plan_of, result_of, write_study
from made_tunings import outcome_in

from anybatch.cli import main
from anybatch.errors import UserError
from anybatch.lab.pages import study_parts
from anybatch.lab.studies import cells, recorded, runner
from anybatch.lab.studies.cells import Result
from anybatch.lab.studies.plan import StudyPlan
from anybatch.lab.studies.plan_file import hash_of
from anybatch.lab.tuning import outcome as tuning_outcome
from anybatch.lab.verdicts import Scores, judge

RECORDED = Path(__file__).parents[3] / "results"
CUT_OFF = "is cut off: the end of the file is missing"
CHANGED = "was changed after it was written: its hash does not match its content"


@pytest.fixture
def plan() -> StudyPlan:
    return plan_of(made_studies.STALE)


@pytest.fixture
def folder(plan: StudyPlan, tmp_path: Path) -> Path:
    """A study with a failed cell, and one that has not been run."""
    last, missing = plan.cells[-1].name, plan.cells[-2].name
    return write_study(plan, tmp_path / "study", failed=(last,), missing=(missing,))


@pytest.fixture
def file(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "study.jsonl.gz"
    main(["report", str(folder), "--record", str(path)])
    return path


def content(path: Path) -> list[dict[str, Any]]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    text = gzip.decompress(path.read_bytes()).decode()
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def write_lines(path: Path, lines: list[Any]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


def error_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command ends with, with exit code 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(words)
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    return line


def test_a_recorded_study_is_that_of_its_folder(folder: Path, file: Path, plan: StudyPlan):
    view = study_parts.read(file)
    assert view.plan == plan and view.plan.hash == plan.hash
    assert list(view.results.values()) == runner.results(folder, plan)
    assert view.verdicts == judge(Scores(plan, runner.results(folder, plan)))


def test_every_cell_of_the_plan_is_a_row_that_can_be_read_by_itself(file: Path, plan: StudyPlan):
    header, *rows = content(file)
    assert header["schema"] == 1 and header["kind"] == "study" and "cells" not in header["plan"]
    assert header["plan"]["verdicts"] == list(plan.verdicts)
    assert [row["name"] for row in rows] == [cell.name for cell in plan.cells]
    assert [row["status"] for row in rows[-3:]] == ["done", "not run", "diverged"]
    assert rows[-1]["reason"] == "the gradient became non-finite" and "curve" not in rows[-1]
    first, cell = rows[2], plan.cells[2]
    assert (first["arm"], first["ratio"], first["seed"]) == (cell.arm, cell.ratio, cell.seed)
    assert first["config"] == json.loads(json.dumps(cell.config))
    assert len(first["curve"]) == 100 and first["area"] and first["facts"]["seconds"] == 60


def test_the_hash_is_that_of_the_plan_with_its_rows_and_verdict_rules(file: Path):
    header, *rows = content(file)
    known = {name: value for name, value in header["plan"].items() if name not in StudyPlan.NOT_HASHED}
    of_cells = [{name: row[name] for name in cells.CELL_KEYS} for row in rows]
    assert hash_of(known | {"cells": of_cells}) == header["plan"]["hash"]


def test_equal_content_has_equal_bytes(folder: Path, file: Path, tmp_path: Path):
    again = tmp_path / "elsewhere" / "another-name.jsonl.gz"
    main(["report", str(folder), "--record", str(again)])
    assert again.read_bytes() == file.read_bytes()
    assert file.read_bytes()[3:8] == bytes(5)  # neither a name nor a time


def test_the_report_of_a_file_is_that_of_its_folder(folder: Path, file: Path):
    main(["report", str(folder)])
    main(["report", str(file)])
    made = [folder / "report" / "data", file.parent / "study-report" / "data"]
    first, second = ({path.name: path.read_text() for path in data.iterdir()} for data in made)
    assert first == second and first["cells.csv"].count("\n") == 27


def renamed(settings: Any) -> Any:
    """Settings of which no name is known today."""
    if isinstance(settings, dict):
        return {f"former_{name}": renamed(value) for name, value in settings.items()}
    return settings


def test_no_config_class_of_today_is_needed(plan: StudyPlan, tmp_path: Path):
    former = replace(plan, cells=tuple(replace(one, config=renamed(dict(one.config))) for one in plan.cells))
    results = [
        replace(result_of(plan, one), cell=other, plan_hash=former.hash)
        for one, other in zip(plan.cells, former.cells, strict=True)
    ]
    path = tmp_path / "former.jsonl.gz"
    recorded.write_study(path, former, results)
    main(["report", str(path)])
    page = (tmp_path / "former-report" / "index.html").read_text()
    assert "24 of 24 cells have been run" in page
    assert judge(Scores(*recorded.study_in(recorded.read(path)))) == judge(Scores(former, results))


def test_entries_that_plans_do_not_have_today_are_kept_in_the_hash(file: Path, plan: StudyPlan):
    header, *rows = content(file)
    header["plan"] |= {"gates": ["learned"], "request": header["plan"]["request"] | {"on": "mars"}}
    write_lines(file, [header, *rows])
    with pytest.raises(UserError, match=CHANGED):
        study_parts.read(file)
    known = {name: value for name, value in header["plan"].items() if name not in StudyPlan.NOT_HASHED}
    known |= {"cells": [{name: row[name] for name in cells.CELL_KEYS} for row in rows]}
    header["plan"]["hash"] = hash_of(known)
    write_lines(file, [header, *rows])
    view = study_parts.read(file)
    assert view.plan.hash == header["plan"]["hash"] != plan.hash and len(view.verdicts) == 1


def test_a_plan_that_this_version_would_not_record_whole_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = json.loads((folder / "plan.json").read_text()) | {"gates": ["learned"]}
    data["hash"] = hash_of({name: data[name] for name in data if name not in StudyPlan.NOT_HASHED})
    (folder / "plan.json").write_text(json.dumps(data))
    for path in (folder / "cells").iterdir():
        path.write_text(json.dumps(json.loads(path.read_text()) | {"plan_hash": data["hash"]}))
    assert len(study_parts.read(folder).results) == 25
    said = error_of(["report", str(folder), "--record", str(tmp_path / "new.jsonl.gz")], capsys)
    assert "made by a version of anybatch whose plans have other entries" in said


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def make_empty(file: Path) -> None:
    file.write_bytes(b"")


def decompress(file: Path) -> None:
    file.write_bytes(gzip.decompress(file.read_bytes()))


def damage(file: Path) -> None:
    there = file.read_bytes()
    file.write_bytes(there[:1000] + bytes(byte ^ 255 for byte in there[1000:1100]) + there[1100:])


def with_lines(change: Callable[[list[Any]], list[Any]]) -> Callable[[Path], None]:
    return lambda file: write_lines(file, change(content(file)))


def with_header(**entries: Any) -> Callable[[Path], None]:
    return with_lines(lambda lines: [lines[0] | entries, *lines[1:]])


def with_row(place: int, **entries: Any) -> Callable[[Path], None]:
    return with_lines(lambda lines: [*lines[:place], lines[place] | entries, *lines[place + 1 :]])


def with_half_a_line(file: Path) -> None:
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes())[:-9]))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (cut, CUT_OFF),
        (make_empty, "is cut off: it is empty"),
        (decompress, "is not a recorded study or tuning: it is not compressed by gzip"),
        (damage, "is damaged: it cannot be decompressed"),
        (with_half_a_line, "is damaged: line 27 is not JSON"),
        (with_lines(lambda lines: lines[:-1]), CHANGED),
        (with_lines(lambda lines: [*lines[:-2], *lines[:-3:-1]]), CHANGED),
        (with_lines(lambda _: [1, 2]), "is not a recorded study or tuning: its lines are not JSON objects"),
        (with_lines(lambda _: [{"a": 1}]), "has schema None; this version reads schema 1"),
        (with_header(schema=2), "has schema 2; this version reads schema 1"),
        (with_header(kind="film"), "is damaged: it does not have the entries of a recorded study or tuning"),
        (with_header(plan=None), "is damaged: it does not have the entries of a recorded study or tuning"),
        (with_header(plan={"hash": "0"}), "is not the plan of a study"),
        (with_row(3, status=None), "is damaged: it does not have the entries of a recorded study or tuning"),
        (with_row(3, status="lost"), "is damaged: a study does not write such status"),
        (with_row(3, ratio="1/2"), CHANGED),
        (with_row(3, curve=[[100, 1.0]], metrics={}), "is damaged: its curve has 1 points instead of 100"),
        (with_row(3, curve=[[100, float("nan")]]), "is damaged: a study does not write such curve"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_a_sentence(
    file: Path, spoil: Callable[[Path], None], sentence: str, capsys: pytest.CaptureFixture[str]
):
    spoil(file)
    before = file.read_bytes()
    said = error_of(["report", str(file)], capsys)
    assert said.startswith(f"anybatch report: {file}") and sentence in said
    assert file.read_bytes() == before and not (file.parent / "study-report").exists()


def test_a_record_is_replaced_only_by_more_of_the_same_plan(
    plan: StudyPlan, folder: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    before = file.read_bytes()
    another = write_study(plan_of(made_studies.SWEEP), tmp_path / "another")
    assert "is the record of another plan and would be lost" in error_of(
        ["report", str(another), "--record", str(file)], capsys
    )
    gone = cells.path_of(folder, plan.cells[2].name)
    kept = gone.read_bytes()
    gone.unlink()
    said = error_of(["report", str(folder), "--record", str(file)], capsys)
    assert f"has results that would be lost, {plan.cells[2].name}: choose another file" in said
    assert file.read_bytes() == before
    gone.write_bytes(kept)
    cells.write(folder, result_of(plan, plan.cells[-2]))
    main(["report", str(folder), "--record", str(file)])
    assert len(study_parts.read(file).results) == len(plan.cells)


def test_a_file_that_is_not_a_record_is_not_replaced(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    own = tmp_path / "own.jsonl.gz"
    own.write_text("mine")
    said = error_of(["report", str(folder), "--record", str(own)], capsys)
    assert "is not a recorded study or tuning" in said and own.read_text() == "mine"


def test_requests_that_record_cannot_fulfil_are_refused(
    folder: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    new = str(tmp_path / "new.jsonl.gz")
    for words, sentence in {
        (str(folder), "--record", str(tmp_path / "new.json")): "must have a name that ends in .jsonl.gz",
        (str(folder), "--record", new, "--out", "x"): "cannot be used with --out",
        (str(file), "--record", new): "is one file already",
        (str(tmp_path), "--record", new): "is neither",
        (str(folder), str(file), "--record", new): "which has its own report: name nothing else beside it",
    }.items():
        assert sentence in error_of(["report", *words], capsys)
    assert not Path(new).exists()


def test_trials_are_rows_of_a_recorded_tuning(tmp_path: Path):
    outcome = outcome_in(tmp_path)
    first = outcome.trials[0].cells(outcome.plan)[0]
    cells.write(tmp_path, Result(cell=first, plan_hash=outcome.plan.hash, facts={}, failed="too slow"))
    path = tmp_path / "tuning.jsonl.gz"
    tuning_outcome.record(path, outcome)
    header, *rows = content(path)
    assert header["kind"] == "tuning" and header["tuning"]["hash"] == outcome.plan.hash
    trials = [row for row in rows if isinstance(row["seed"], list)]
    assert {row["status"] for row in trials} == {"done", "pruned", "failed"} and len(trials) == 40
    assert trials[0].keys() >= set(cells.CELL_KEYS) and trials[0]["seed"] == list(outcome.plan.seeds)
    best = trials[outcome.best.number]
    assert best["point"] == outcome.best.point and best["area"] == outcome.best.value
    assert best["config"]["objective"]["clip"] == outcome.best.point["clip"]
    run = rows[len(trials)]
    assert run["name"] == f"trial-0000__s{outcome.plan.seeds[0]}" and run["reason"] == "too slow"
    assert [row["name"] for row in rows[len(trials) + 1 :]] == [cell.name for cell in outcome.check.cells]
    assert tuning_outcome.outcome_in(recorded.read(path)) == outcome
    main(["report", str(path)])
    assert (tmp_path / "tuning-report" / "data" / "trials.csv").read_text().count("\n") == 41


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (with_header(importances=None), "is damaged: it is not a recorded tuning"),
        (with_header(importances={"clip": "a lot"}), "is damaged: it is not a recorded tuning"),
        (with_row(1, area="high"), "is damaged: trial-0000 is not a trial"),
        (with_row(1, status="lost"), "is damaged: trial-0000 is not a trial (KeyError('lost'))"),
        (with_lines(lambda lines: lines[:1] + lines[41:]), "is damaged: none of its trials has finished"),
        (with_lines(lambda lines: lines[:-1]), CHANGED),
    ],
)
def test_a_recorded_tuning_that_cannot_be_used_is_refused_in_a_sentence(
    spoil: Callable[[Path], None], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "tuning.jsonl.gz"
    tuning_outcome.record(path, outcome_in(tmp_path))
    spoil(path)
    assert sentence in error_of(["report", str(path)], capsys)
    assert path.exists() and not (tmp_path / "tuning-report").exists()


def test_the_dial_takes_recorded_studies_and_no_tunings(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "dial.html"
    said = error_of(["dial", str(RECORDED / "tuning" / "cartpole.jsonl.gz"), "--out", str(page)], capsys)
    assert "is the record of a tuning, not of a study" in said and not page.exists()
    study = RECORDED / "studies" / "invariance-mujoco"
    main(["dial", f"{study}.jsonl.gz", "--out", str(page)])
    assert str(study) in page.read_text() and f"{study}.jsonl" not in page.read_text()


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*/*.jsonl.gz")), ids=lambda path: path.name)
def test_the_files_in_results_can_be_read_and_are_as_this_version_writes_them(path: Path, tmp_path: Path):
    record, again = recorded.read(path), tmp_path / path.name
    if record.kind == recorded.STUDY:
        plan, results = recorded.study_in(record)
        assert len(results) == sum(row["status"] != "not run" for row in record.rows) <= len(plan.cells)
    else:
        outcome = tuning_outcome.outcome_in(record)
        assert outcome.preset_file.name == f"{path.name.removesuffix(recorded.SUFFIX)}.toml"
    recorded.write(again, record.header, record.rows)
    assert content(again) == content(path)
