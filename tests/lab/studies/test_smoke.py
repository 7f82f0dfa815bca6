"""Every study of the package, at a scale of seconds, as the command line runs it."""

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from small_studies import STUDY

from anybatch.cli import main
from anybatch.lab import statistics
from anybatch.lab.pages.studies import ANSWERS
from anybatch.lab.studies import files
from anybatch.runs import folder as run_folder


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence of a command that is refused with exit code 2."""
    with pytest.raises(SystemExit) as exit_:
        main(["study", *words])
    assert exit_.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("name", files.names())
def test_a_study_ends_with_its_verdicts(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["study", name, "--scale", "smoke", "--jobs", "1", "--out", str(tmp_path)])
    shown = capsys.readouterr()
    plan = json.loads((tmp_path / "plan.json").read_text())
    written = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "cells").iterdir()}
    assert written.keys() == {cell["name"] for cell in plan["cells"]}
    assert all(cell["status"] == "done" for cell in written.values())
    assert all(cell["plan_hash"] == plan["hash"] for cell in written.values())
    found = json.loads((tmp_path / "verdicts.json").read_text())
    assert found and all(verdict["comparisons"] for verdict in found)
    assert all(f"{verdict['name']}: {verdict['state']}" in shown.out for verdict in found)
    page = html.unescape((tmp_path / "report" / "index.html").read_text())
    for verdict in found:
        assert f"{verdict['state']}</span><div><h3>{verdict['claim']}</h3>" in page
        void = verdict["state"] == "void"
        said = [verdict["reason"]] if void else [one["label"] for one in verdict["comparisons"]]
        assert all(words in page for words in said)
    answers(page.partition('class="lead">')[2].partition("</p>")[0], found[0])
    assert shown.err == ""


def answers(lead: str, verdict: dict[str, Any]) -> None:
    """A page begins with the answer of its first verdict, its claim, and all of the reason."""
    if verdict["state"] in ("measured", "void"):
        assert lead == verdict["sentence" if verdict["state"] == "measured" else "reason"]
        return
    claim, _, reason = verdict["sentence"].partition(f" {verdict['state'].capitalize()}: ")
    assert claim == verdict["claim"] and reason
    assert lead.startswith(ANSWERS[verdict["state"]].partition("{")[0]) and claim in lead
    assert lead.endswith(reason)


def test_tuning_says_where_the_optimum_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["study", "invariance", "--scale=smoke", "--tune", "--jobs=1", f"--out={tmp_path}"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "the best learning rate is ×" in shown
    assert re.search(
        r'range "toy:Match" = \[1\.\d+, \d[\d.]*\]: random play, and the mean final return of 2 ', shown
    )
    assert "note: In toy:Match, the best setting of the sweep, learning rate 0.08, is at the edge" in shown
    (verdict,) = json.loads((tmp_path / "verdicts.json").read_text())
    assert verdict["name"] == "tuned" and set(verdict["comparisons"][0]["details"]["means"]) == {
        "0.25",
        "1.0",
        "4.0",
    }


def test_a_study_without_scipy_is_refused_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "scipy", None)
    statistics.stats.cache_clear()
    said = refusal(capsys, "invariance", "--scale=smoke", f"--out={tmp_path / 'out'}")
    statistics.stats.cache_clear()
    assert "pip install 'anybatch[lab]'" in said and not (tmp_path / "out").exists()


def test_a_plan_is_shown_without_running_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--scale", "smoke", "--env", "Acrobot-v1", "--plan", f"--out={tmp_path / 'out'}"]
    main(["study", "invariance", *words, "--range", "-500", "-80"])
    shown = capsys.readouterr().out
    assert "Acrobot-v1" in shown
    assert "Left out: ratio 1/32, since 1/32 of 16 envs is not a whole number." in shown
    assert not (tmp_path / "out").exists()


def test_a_study_that_is_running_is_not_planned_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text(STUDY)
    out.mkdir()
    with run_folder.lock(out):
        said = refusal(capsys, str(file), f"--out={out}")
    assert f"another process is training in {out}" in said
    assert [path.name for path in out.iterdir()] == ["lock"]


def test_studies_are_listed(capsys: pytest.CaptureFixture[str]):
    main(["study"])
    shown = capsys.readouterr().out
    assert all(f"{name}: {files.load(name).title}" in shown for name in files.names())


def test_what_cannot_be_run_is_said_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "there is no study 'staleness2'; did you mean staleness?" in refusal(capsys, "staleness2")
    assert "has no scale huge; it has smoke, cpu, paper" in refusal(capsys, "abs", "--scale=huge")
    assert "nothing to tune at scale cpu" in refusal(capsys, "transfer", "--tune")
    assert "--seeds 0: must be at least 1" in refusal(capsys, "abs", "--seeds=0")
    assert "'soon' must be a duration such as 20m" in refusal(capsys, "abs", "--budget=soon")
    for env in ("nothing-v7", "CartPole-v9", "minatar:Pong"):
        assert f"there is no environment {env}" in refusal(capsys, "invariance", f"--env={env}", "--plan")
    file = tmp_path / "mine.toml"
    file.write_text(STUDY.replace("margin = 0.1", "margn = 0.1"))
    assert "there is no field margn; did you mean margin?" in refusal(capsys, str(file))
    file.write_text(STUDY.replace('control = { arm = "none" }\n', ""))
    assert "rule = equivalent needs a control, cells that must fail" in refusal(capsys, str(file))
    file.write_text(STUDY.replace('"toy:Match" = [0, 10]\n', ""))
    assert "mine has no fixed scale for returns in toy:Match: add [ranges]" in refusal(capsys, str(file))
    acrobot = (str(file), "--env=Acrobot-v1", "--plan")
    assert "in Acrobot-v1: add --range with the returns of Acrobot-v1" in refusal(capsys, *acrobot)
    assert "--range has 1 number: it needs a low and a high" in refusal(capsys, *acrobot, "--range=1")
    assert "--range 2 1: must be a low and a high return" in refusal(capsys, *acrobot, "--range", "2", "1")
    assert "--range has 2 numbers" in refusal(capsys, str(file), "--range", "1", "2")
