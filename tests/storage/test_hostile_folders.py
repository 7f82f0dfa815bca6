"""Folders from somebody else, with links, FIFOs and odd text under the names that we use.

Each sentence of SECURITY.md about files is quoted by the test that holds it.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked_commands import Commands
from small_studies import run_study, study
from small_tunings import request
from toy_runs import toy_config, train

from anybatch.cli import main
from anybatch.errors import DiskError, UserError
from anybatch.export import hub, video
from anybatch.lab.pages import report_files
from anybatch.lab.pages.report_files import Report
from anybatch.lab.studies import cells, opening
from anybatch.lab.studies.plan import Request
from anybatch.lab.tuning import trials
from anybatch.lab.tuning.tune import open_tuning
from anybatch.runs import folder as run_folder
from anybatch.runs.record import RunRecord
from anybatch.storage import safe_files
from anybatch.storage.safe_files import Folder

PROFILE = b"export PATH\nthe last line, without an end"
MORE = ["--total-env-steps", "200"]
PAGE = Path(__file__).parents[2] / "SECURITY.md"
Refused = Callable[..., str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints, the best of its evaluations, and segments."""
    config = toy_config(
        staleness={"iterations": 1},
        evaluation={"num_envs": 2, "every_env_steps": 50},
        record={"tensorboard": False, "checkpoint_every_iterations": 1},
    )
    return train(config, tmp_path_factory.mktemp("trained")).folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, in which a test may change everything."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def profile(tmp_path: Path) -> Iterator[Path]:
    """A file of the user, which must stay as it is."""
    path = tmp_path / "profile"
    path.write_bytes(PROFILE)
    yield path
    assert path.read_bytes() == PROFILE


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user, which must stay as it is."""
    path = tmp_path / "elsewhere"
    path.mkdir()
    (path / "notes.txt").write_text("precious")
    yield path
    assert [entry.name for entry in path.iterdir()] == ["notes.txt"]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """The one sentence that a command ends with."""

    def run(*words: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(words)
        lines = capsys.readouterr().err.splitlines()
        assert stop.value.code == 2
        assert len(lines) == 1 and lines[0].startswith(f"anybatch {words[0]}: ")
        return lines[0]

    return run


def test_every_sentence_about_files_is_quoted_by_a_test():
    section = PAGE.read_text().partition("## Which files are read and written")[2].partition("\n## ")[0]
    text = " ".join(line.removeprefix("- ").strip() for line in section.splitlines() if line)
    sentences = re.split(r"(?<=\.) (?=[A-Z])", text.partition(": ")[2])
    quoted = [" ".join((test.__doc__ or "").split()) for name, test in globals().items() if "test_" in name]
    assert len(sentences) > 5
    for sentence in sentences:
        assert any(sentence in words for words in quoted), sentence


# Links


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics-superseded.jsonl", "lock"])
def test_a_resume_does_not_write_through_a_linked_file(name: str, run: Path, profile: Path, refused: Refused):
    """Runs, studies, tunings, exports and reports write only regular files, in real folders inside the folder
    that you name.

    A link, a hard link, a FIFO or a device in the place of a file to be written ends the command with one
    sentence, and what it points to stays as it is.
    """
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write("curl somewhere | sh\n")  # not a row, so that it is moved
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(profile)
    assert f"run/{name} is a link, but must be a regular file" in refused("resume", str(run), *MORE)


@pytest.mark.parametrize("name", ["checkpoints", "segments", "checkpoints/best"])
def test_a_resume_does_not_write_through_a_linked_folder(
    name: str, run: Path, tmp_path: Path, refused: Refused
):
    there = tmp_path / "there"
    shutil.move(run / name, there)
    (run / name).symlink_to(there)
    before = files_in(there)
    changes = ["--evaluation.num-envs", "9"]  # so that another policy may be the best
    if name == "checkpoints/best":
        for state in there.glob("*/state.json"):
            state.write_text(state.read_text().replace('"evaluation_return": ', '"evaluation_return": -9'))
        before = files_in(there)
    said = refused("resume", str(run), *MORE, *changes)
    assert f"run/{name} is a link, but must be a folder" in said
    assert files_in(there) == before


def test_a_resume_does_not_write_through_a_link_under_a_temporary_name(
    run: Path, profile: Path, tmp_path: Path
):
    """A file that is replaced as a whole, such as config.json, is written under another name and renamed.

    If it was a link, the link is replaced, not its target.
    """
    undisturbed = Path(shutil.copytree(run, tmp_path / "undisturbed"))
    main(["resume", str(undisturbed), *MORE])
    for name in ("config.json", "plan.json", "facts.json", "result.json", "metrics.jsonl"):
        (run / f".aside-{name}").symlink_to(profile)
    for segment in (undisturbed / "segments").iterdir():
        (run / "segments" / f".aside-{segment.name}").symlink_to(profile)
        if not (run / "segments" / segment.name).exists():
            (run / "segments" / segment.name).symlink_to(profile)
    for file in (undisturbed / "checkpoints").glob("step_*/*"):
        aside = run / "checkpoints" / f".aside-{file.parent.name}"
        aside.mkdir(exist_ok=True)
        (aside / file.name).symlink_to(profile)
    (run / "plan.json").unlink()
    (run / "plan.json").symlink_to(profile)
    main(["resume", str(run), *MORE])
    assert not (run / "plan.json").is_symlink()
    same = [RunRecord(path).rows[-1]["env_steps"] for path in (run, undisturbed)]
    assert same[0] == same[1]


def test_a_checkpoint_that_would_be_written_to_a_linked_folder_is_refused(
    run: Path, elsewhere: Path, tmp_path: Path, refused: Refused
):
    undisturbed = Path(shutil.copytree(run, tmp_path / "undisturbed"))
    main(["resume", str(undisturbed), *MORE])
    last = max((undisturbed / "checkpoints").glob("step_*"))
    (run / "checkpoints" / f".aside-{last.name}").symlink_to(elsewhere)
    assert f".aside-{last.name} is a link, but must be a folder" in refused("resume", str(run), *MORE)


def test_a_hard_link_is_refused(run: Path, profile: Path, refused: Refused):
    (run / "metrics.jsonl").unlink()
    os.link(profile, run / "metrics.jsonl")
    assert "metrics.jsonl is the same file as another one" in refused("resume", str(run), *MORE)


def test_a_folder_that_is_swapped_while_it_is_open_is_not_left(tmp_path: Path, elsewhere: Path):
    """The call that opens a file checks this, so that nobody can swap a file after the check."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with Folder.opened(tmp_path / "run" / "checkpoints", within=tmp_path / "run") as place:
        (tmp_path / "run" / "checkpoints").rename(tmp_path / "run" / "moved")
        (tmp_path / "run" / "checkpoints").symlink_to(elsewhere)
        place.replace("state.json", b"{}")
        place.append("log").close()
    assert {path.name for path in (tmp_path / "run" / "moved").iterdir()} == {"state.json", "log"}


def test_a_file_that_becomes_a_link_again_and_again_is_never_written_through(tmp_path: Path, profile: Path):
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for make in (lambda path: path.symlink_to(profile), Path.touch):
                make(tmp_path / "next")
                (tmp_path / "next").replace(tmp_path / "metrics.jsonl")

    swapping = threading.Thread(target=swap)
    swapping.start()
    outcomes: set[bool] = set()
    try:
        for _ in range(3000):
            try:
                with Folder.opened(tmp_path) as place, place.append("metrics.jsonl") as file:
                    file.write(b"row\n")
                    file.truncate(0)
                outcomes.add(True)
            except DiskError:
                outcomes.add(False)
            with Folder.opened(tmp_path) as place:
                place.replace("other", b"row\n")
    finally:
        stop.set()
        swapping.join()
    assert outcomes == {True, False}


def test_no_name_leads_out_of_a_folder(tmp_path: Path):
    inside = tmp_path / "inside"
    inside.mkdir()
    with Folder.opened(inside) as place:
        for name in ("..", "../outside", "/outside"):
            with pytest.raises(DiskError, match="is outside"):
                place.create(name, b"")
    with pytest.raises(DiskError, match="is outside"):
        safe_files.replace(inside / ".." / "outside", b"", within=inside)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_the_named_folder_may_be_a_link(run: Path, tmp_path: Path):
    """Only the folder that you name may itself be a link."""
    link = tmp_path / "link"
    link.symlink_to(run)
    main(["resume", str(link), *MORE])
    assert RunRecord(run).rows[-1]["env_steps"] > 100


def test_links_are_read(run: Path, tmp_path: Path):
    """Links are followed for reading."""
    for name in ("metrics.jsonl", "config.json", "checkpoints"):
        shutil.move(run / name, tmp_path / name)
        (run / name).symlink_to(tmp_path / name)
    main(["evaluate", str(run)])
    main(["report", str(run), "--out", str(tmp_path / "report")])


def test_a_report_does_not_write_through_links(run: Path, elsewhere: Path, profile: Path, refused: Refused):
    (run / "report").symlink_to(elsewhere)
    assert "run/report is a link, but must be a folder" in refused("report", str(run))
    (run / "report").unlink()
    main(["report", str(run)])
    for name in ("data", "figures"):
        shutil.rmtree(run / "report" / name)
        (run / "report" / name).symlink_to(elsewhere)
        assert f"report/{name} is a link, but must be a folder" in refused("report", str(run))
        (run / "report" / name).unlink()
    (run / "report" / ".aside-index.html").symlink_to(profile)
    main(["report", str(run)])


def test_a_report_may_be_written_to_a_link_that_a_person_names(tmp_path: Path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    report_files.write(Report("<p>a page", (), {}), tmp_path / "link")
    assert (tmp_path / "there" / "index.html").is_file()


def test_a_picture_and_a_video_replace_a_link(run: Path, profile: Path, tmp_path: Path):
    picture = tmp_path / "curve.svg"
    picture.symlink_to(profile)
    (tmp_path / ".aside-curve.svg").symlink_to(profile)
    main(["plot", str(run), "--out", str(picture)])
    assert picture.is_file() and not picture.is_symlink()
    for name in ("video.gif", "video.mp4"):
        (tmp_path / name).symlink_to(profile)
        video.write(tmp_path / name, iter(np.zeros((3, 16, 16, 3), dtype=np.uint8)), 30)
        assert (tmp_path / name).is_file() and not (tmp_path / name).is_symlink()


@pytest.mark.parametrize("words", [("export", "--onnx"), ("export", "--no-video", "--hub")])
def test_an_export_does_not_write_through_a_link_under_its_temporary_name(
    words: tuple[str, ...], run: Path, elsewhere: Path, tmp_path: Path, refused: Refused
):
    out = tmp_path / "out.onnx"
    (tmp_path / ".aside-out.onnx").symlink_to(elsewhere)
    command, *flags = words
    said = refused(command, str(run), *flags, str(out))
    assert ".aside-out.onnx is a link, but must be a folder" in said
    assert not out.exists()


def test_what_a_link_points_to_is_not_published(run: Path, profile: Path):
    (run / "README.md").symlink_to(profile)
    with pytest.raises(UserError, match=r"README\.md is a link"):
        hub.push(run, "somebody/policy", private=True, update=False, message="")


@pytest.mark.parametrize("name", ["cells", "source", "runs"])
def test_a_study_does_not_write_through_a_linked_folder(name: str, elsewhere: Path, tmp_path: Path):
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(elsewhere)
    with pytest.raises(UserError, match=f"out/{name} is a link, but must be a folder"):
        run_study(out)


@pytest.mark.parametrize("name", ["log.txt", ".gitignore"])
def test_a_study_does_not_write_through_a_linked_file(name: str, profile: Path, tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).symlink_to(profile)
    with pytest.raises(DiskError, match=f"out/{name} is a link, but must be a regular file"):
        run_study(out)


def test_the_lock_of_a_study_is_not_a_link(profile: Path, tmp_path: Path, refused: Refused):
    (tmp_path / "lock").symlink_to(profile)
    said = refused("study", "abs", "--scale", "smoke", "--out", str(tmp_path))
    assert "lock is a link, but must be a regular file" in said


def test_a_cell_does_not_continue_in_a_linked_run(elsewhere: Path, tmp_path: Path):
    out = tmp_path / "out"
    plan = opening.open_study(study(), Request(study="small"), out, jobs=1)
    (out / cells.RUNS).mkdir()
    for cell in (cell for cell in plan.cells if cell.arm != cells.RANDOM_ARM):
        (out / cells.RUNS / cell.name).symlink_to(elsewhere)
    with pytest.raises(UserError, match="is a link, but must be a folder"):
        run_study(out)


def test_the_copy_of_the_package_is_not_removed_through_a_link(tmp_path: Path):
    opening.freeze(tmp_path / "first")
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "source").symlink_to(tmp_path / "first" / "source")
    before = opening.digest(tmp_path / "first" / "source" / "anybatch")
    with pytest.raises(DiskError, match="second/source is a link"):
        opening.freeze(tmp_path / "second")
    assert opening.digest(tmp_path / "first" / "source" / "anybatch") == before


def test_a_tuning_does_not_write_through_a_linked_journal(profile: Path, tmp_path: Path):
    out = tmp_path / "out"
    plan = open_tuning(request(tmp_path), out, jobs=1)
    journal = out / trials.JOURNAL_FILE
    journal.symlink_to(profile)
    with pytest.raises(DiskError, match=r"trials\.journal is a link"):
        trials.TrialBook(out, plan)
    journal.unlink()
    book = trials.TrialBook(out, plan)
    journal.unlink()
    journal.symlink_to(profile)
    with pytest.raises(DiskError, match=r"trials\.journal is a link"):
        trials.Journal(journal).append_logs([{}])
    del book


def test_optuna_reads_the_journal_of_a_tuning(tmp_path: Path):
    import optuna
    from optuna.storages import journal

    out = tmp_path / "out"
    plan = open_tuning(request(tmp_path), out, jobs=1)
    book = trials.TrialBook(out, plan)
    for value in (1.0, 2.0):
        trial = book.next()
        assert trial is not None
        book.finish(trial.number, "finished", value)
    backend = journal.JournalFileBackend(str(out / trials.JOURNAL_FILE))
    storage = optuna.storages.JournalStorage(backend)
    read = optuna.load_study(study_name=trials.STUDY_NAME, storage=storage)
    assert [trial.value for trial in read.trials] == [1.0, 2.0]


# FIFOs


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lock", ["resume", *MORE]),
        ("metrics.jsonl", ["resume", *MORE]),
        ("metrics.jsonl", ["report"]),
        ("result.json", ["report"]),
        ("report/index.html", ["report"]),
        ("checkpoints/*/state.json", ["evaluate"]),
        ("checkpoints/*/tensors.safetensors", ["evaluate"]),
        ("checkpoints/*/checksums.json", ["resume", *MORE]),
        ("checkpoints/best/*/state.json", ["evaluate", "--checkpoint", "best"]),
        ("segments/*", ["resume", *MORE]),
    ],
)
def test_a_fifo_is_refused_and_not_waited_for(name: str, words: list[str], run: Path, commands: Commands):
    """A FIFO or a device is never read, so no command waits for one."""
    if name.startswith("report"):
        main(["report", str(run)])
    places = list(run.glob(name))
    assert places
    for path in places:
        path.unlink()
        os.mkfifo(path)
    command, *flags = words
    with commands.start([command, str(run), *flags]) as started:
        assert started.wait(60) == 2
        said = "".join(started.said())
    assert "Traceback" not in said
    assert "is a FIFO, but must be" in said or "is not a regular file" in said


@pytest.mark.parametrize(
    "words",
    [
        ["study", "fifo.toml"],
        ["study", "fifo.toml", "--plan"],
        ["plan", "--preset", "fifo.toml"],
        ["plan", "--from", "sb3", "fifo.json", "--num-envs", "4"],
        ["plan", "--from", "sb3", "fifo.yaml", "--num-envs", "4"],
        ["report", "fifo.jsonl.gz"],
        ["dial", "fifo.jsonl.gz"],
    ],
)
def test_a_fifo_that_a_person_names_is_not_waited_for(words: list[str], tmp_path: Path, commands: Commands):
    for word in words:
        if word.startswith("fifo"):
            os.mkfifo(tmp_path / word)
    with commands.start([str(tmp_path / word) if "fifo" in word else word for word in words]) as started:
        assert started.wait(60) == 2
        assert "Traceback" not in "".join(started.said())


def test_a_device_is_not_read(run: Path, commands: Commands):
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to("/dev/zero")  # which never ends
    with commands.start(["report", str(run)]) as started:
        assert started.wait(60) == 2
        assert "metrics.jsonl cannot be read: it is not a regular file" in started.said()[1]


# Text


def test_a_folder_whose_name_is_not_utf8_is_refused_and_not_made(tmp_path: Path):
    """A run folder is not created in a folder whose name is not UTF-8."""
    for words in (
        ["train", "--env", "toy:Match", "--run-dir"],
        ["study", "abs", "--scale", "smoke", "--out"],
    ):
        done = anybatch([*words, b"nu\xff"], tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert "must be a name in UTF-8" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_command_line_that_is_not_utf8_is_recorded(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["anybatch", "resume", "run\udcff"])
    main(["resume", str(run), *MORE])
    assert RunRecord(run).facts["command"][-1] == "run\udcff"


ODD = "odd\udcff"


@pytest.mark.parametrize("name", ["facts.json", "plan.json", "config.json", "metrics.jsonl", "folder"])
def test_text_that_is_not_unicode_is_shown_with_a_question_mark(name: str, run: Path, tmp_path: Path):
    """Text in a record that is not Unicode is shown with a ? instead."""
    out = tmp_path / "report"
    if name == "folder":
        run = run.rename(tmp_path / "odd\udcff")
    else:
        lines = (
            (run / name).read_text().splitlines() if name == "metrics.jsonl" else [(run / name).read_text()]
        )
        changed = [json.dumps(with_odd_text(json.loads(line), name)) for line in lines]
        (run / name).write_text("\n".join(changed) + "\n")
    main(["report", str(run), "--out", str(out)])
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.suffix in (".html", ".csv"))
    assert b"odd?" in written
    written.decode()
    for suffix in (".png", ".svg", ".pdf"):
        main(["plot", str(run), "--out", str(tmp_path / f"curve{suffix}")])


def with_odd_text(data: dict[str, Any], name: str) -> dict[str, Any]:
    if name == "facts.json":
        return data | {"engine": ODD, "command": ["anybatch", ODD]}
    if name == "plan.json":
        return data | {"rows": [row | {"rule": ODD} for row in data["rows"]]}
    return data | ({"env": ODD} if name == "config.json" else {ODD: 1.0})


# Numbers and nesting

DEEP = 100_000 * "[" + 100_000 * "]"


@pytest.mark.parametrize(
    "value", [400 * "9", 5000 * "9", DEEP, 70 * "[" + 70 * "]", "1e999", '"1j"', '{"$int": "1j"}']
)
@pytest.mark.parametrize("key", ["evaluation_return", "shared"])
def test_a_best_checkpoint_with_values_of_nobody_is_one_sentence(
    key: str, value: str, run: Path, capsys: pytest.CaptureFixture[str]
):
    """Records, checkpoints and other trainers' settings whose numbers are too large, or which are nested too
    deeply, are refused in one sentence."""
    for step in (run / "checkpoints" / "best").glob("step_*"):
        state = json.loads((step / "state.json").read_text())
        state["state"][key] = "@"
        content = json.dumps(state).replace('"@"', value).encode()
        (step / "state.json").write_bytes(content)
        sums = json.loads((step / "checksums.json").read_text())
        sums["state.json"] = hashlib.sha256(content).hexdigest()
        (step / "checksums.json").write_text(json.dumps(sums))
    capsys.readouterr()
    with contextlib.suppress(SystemExit):
        main(["evaluate", str(run), "--checkpoint", "best"])
    assert all(len(line) < 600 for line in capsys.readouterr().err.splitlines())
    main(["resume", str(run), *MORE])  # whose newest checkpoints are good


@pytest.mark.parametrize("name", ["config.json", "plan.json", "facts.json", "result.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", [DEEP, f'{{"env_steps": {5000 * "9"}}}', f'{{"a": {DEEP}}}'])
def test_a_record_that_is_nested_too_deeply_is_one_sentence(
    name: str, content: str, run: Path, refused: Refused
):
    (run / name).write_text(f"{content}\n")
    assert name in refused("report", str(run)) or name == "config.json"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plan.json", {"batch": {"num_envs": 3}}),
        ("plan.json", {"rows": [{"number": "learning rate"}]}),
        ("facts.json", {"earlier": [1]}),
        ("facts.json", {"command": [1]}),
    ],
)
def test_a_record_without_what_a_page_shows_is_one_sentence(
    name: str, change: dict[str, Any], run: Path, refused: Refused
):
    (run / name).write_text(json.dumps(json.loads((run / name).read_text()) | change))
    assert f"{name} is damaged: a run does not write such {next(iter(change))}" in refused("report", str(run))


# Streams and the working folder

QUICK = ["train", "--env", "toy:Match", "--num-envs", "2", "--total-env-steps", "512", "--run-dir", "runs"]


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_a_run_trains_with_closed_streams(closed: tuple[int, ...], tmp_path: Path):
    done = anybatch(QUICK, tmp_path, closed=closed)
    assert done.returncode == 0
    if 2 not in closed:
        assert "Traceback" not in done.stderr
    record = RunRecord(tmp_path / "runs")
    assert record.result is not None and record.rows
    # Otherwise the first file to be opened would be standard output.
    assert (record.folder / run_folder.LOCK_FILE).read_bytes() == b""


def test_a_wrong_command_with_closed_streams_has_its_exit_code(tmp_path: Path):
    assert anybatch(["train", "--nonsense"], tmp_path, closed=(0, 1, 2)).returncode == 2


@pytest.mark.parametrize("words", [["presets"], QUICK, ["plan", "--preset", "mine.toml"]])
def test_a_working_folder_that_was_removed_is_one_sentence(words: list[str], tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = anybatch(words, gone, before=lambda: gone.rmdir())
    assert done.returncode == 2
    assert done.stderr == (
        f"anybatch {words[0]}: the working folder was removed: change to another one first\n"
    )


def test_a_full_disk_behind_the_output_is_one_sentence(tmp_path: Path):
    with Path("/dev/full").open("w") as full:
        done = anybatch(["presets"], tmp_path, stdout=full)
    assert done.returncode == 2
    assert done.stderr == f"anybatch presets: the output: {os.strerror(errno.ENOSPC)}\n"


def anybatch(
    words: list[Any],
    folder: Path,
    *,
    closed: tuple[int, ...] = (),
    before: Callable[[], None] = lambda: None,
    stdout: Any = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """`python -m anybatch` in a process of its own, in `folder`, with closed streams."""

    def prepare() -> None:
        signal.alarm(300)
        before()
        for number in closed:
            os.close(number)

    return subprocess.run(
        [sys.executable, "-m", "anybatch", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        preexec_fn=prepare,
        check=False,
    )


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
