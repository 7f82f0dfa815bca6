import os
import re
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from anybatch.errors import DiskError, UserError
from anybatch.runs import folder

NOON = datetime(2026, 8, 22, 12, 0, 0)


def make_run(base: Path, name: str, age_seconds: int) -> Path:
    run = base / name
    run.mkdir(parents=True)
    folder.write_json(run / "config.json", {})
    os.utime(run / "config.json", (1e9 - age_seconds, 1e9 - age_seconds))
    return run


def test_the_name_says_env_preset_seed_and_time(tmp_path: Path):
    made = folder.create(tmp_path / "deep" / "runs", folder.name_of("CartPole-v1", "ppo", 3, NOON))
    assert made == tmp_path / "deep" / "runs" / "CartPole-v1__ppo__s3__20260822-120000"
    assert made.is_dir()


def test_unsafe_characters_do_not_reach_the_file_system(tmp_path: Path):
    made = folder.create(tmp_path, folder.name_of("my_package:../Env/A b", "my/preset", 1, NOON))
    assert made.parent == tmp_path and made.name == "my_package-..-Env-A-b__my-preset__s1__20260822-120000"


def test_runs_started_in_the_same_second_get_their_own_folders(tmp_path: Path):
    made = [folder.create(tmp_path, folder.name_of("CartPole-v1", "ppo", 1, NOON)) for _ in range(3)]
    assert [path.name.removeprefix(made[0].name) for path in made] == ["", "-2", "-3"]


def test_the_name_says_what_differs_from_the_preset():
    name = folder.name_of("CartPole-v1", "ppo", 1, NOON, tag="n16-encoder=mlp")
    assert name == "CartPole-v1__ppo__n16-encoder=mlp__s1__20260822-120000"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-rf", "a b", "x" * 101, ".aside"])
def test_a_name_that_is_not_safe_is_refused(name: str):
    with pytest.raises(UserError, match="letters, digits and"):
        folder.validate_name(name)
    folder.validate_name("first-try_2.0")


def test_a_base_that_is_a_file_is_one_sentence(tmp_path: Path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(DiskError, match=r"^no run folder can be made in .*runs: .*runs is not a folder$"):
        folder.create(tmp_path / "runs", folder.name_of("CartPole-v1", "ppo", 1, NOON))


def test_find_run_takes_a_run_or_the_newest_run_of_a_folder(tmp_path: Path):
    make_run(tmp_path, "z", age_seconds=30)
    newest = make_run(tmp_path, "a", age_seconds=10)
    other = make_run(tmp_path, "m", age_seconds=20)
    assert folder.find_run(other) == other
    assert folder.find_run(tmp_path) == newest


def test_find_runs_takes_a_run_or_all_runs_of_a_folder(tmp_path: Path):
    runs = [make_run(tmp_path, name, age_seconds=age) for name, age in (("a", 20), ("m", 10), ("z", 30))]
    (tmp_path / "notes").mkdir()
    assert folder.find_runs(tmp_path) == runs and folder.find_runs(runs[1]) == [runs[1]]
    with pytest.raises(UserError, match="is not a run folder"):
        folder.find_runs(tmp_path / "notes")


def test_find_run_says_what_there_is_instead(tmp_path: Path):
    make_run(tmp_path, "here", age_seconds=0)
    with pytest.raises(UserError, match=r"no folder .*the newest runs in .* are here"):
        folder.find_run(tmp_path / "there")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"is not a run folder.*config\.json"):
        folder.find_run(tmp_path / "empty")
    with pytest.raises(UserError, match="no run in"):
        folder.find_run(tmp_path / "empty" / "missing")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"notes\.txt is a file, not a run folder"):
        folder.find_run(tmp_path / "notes.txt")


def test_json_is_replaced_in_one_step_and_read_back(tmp_path: Path):
    path = tmp_path / "plan.json"
    folder.write_json(path, {"rule": "√ρ", "sizes": [1, 2]})
    reader = path.open()  # a reader of the file as it was keeps it
    folder.write_json(path, {"rule": None})
    assert "√ρ" in reader.read()
    reader.close()
    assert folder.read_json(path) == {"rule": None}
    with pytest.raises(TypeError):
        folder.write_json(path, {"bad": object()})
    assert folder.read_json(path) == {"rule": None}
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]


def test_json_that_is_missing_or_damaged_is_one_sentence(tmp_path: Path):
    (tmp_path / "plan.json").write_text('{"rule": ')
    for name in ("plan.json", "config.json"):
        with pytest.raises(UserError, match=f"{name} cannot be read"):
            folder.read_json(tmp_path / name)


HOLD_THE_LOCK = """
import sys, time
from pathlib import Path
from anybatch.runs import folder
with folder.lock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_process_cannot_train_in_the_same_folder_and_a_kill_leaves_no_lock(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path)], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"locked\n"
        with pytest.raises(UserError, match="another process is training"), folder.lock(tmp_path):
            pass
        other.send_signal(signal.SIGKILL)
    with folder.lock(tmp_path):
        pass
    with folder.lock(tmp_path):  # freed at the end of the block as well
        pass


def test_a_module_that_is_run_has_the_name_of_its_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["/home/someone/lib/anybatch/__main__.py", "train"])
    facts = folder.facts(engine="toy 1", device="cpu", native_code=False, threads=2)
    assert facts["command"] == ["anybatch", "train"]


def test_facts_say_what_a_result_depends_on_and_not_whose_machine_it_was(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["/home/someone/bin/anybatch", "train", "--seed", "3"])
    facts = folder.facts(engine="toy 1", device="cpu", native_code=False, threads=2)
    assert set(facts) == {
        "anybatch",
        "git_commit",
        "python",
        "torch",
        "engine",
        "device",
        "native_code",
        "threads",
        "command",
    }
    assert facts["command"] == ["anybatch", "train", "--seed", "3"]
    assert (facts["engine"], facts["threads"]) == ("toy 1", 2)
    assert str(facts["torch"]).startswith("2.")
    assert facts["git_commit"] is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", str(facts["git_commit"]))
    assert os.uname().nodename not in map(str, facts.values())


def test_a_resume_keeps_the_facts_of_those_who_trained_before(tmp_path: Path):
    for command in ("train", "resume", "resume again"):
        folder.add_facts(tmp_path, {"command": command})
    facts = folder.read_json(tmp_path / folder.FACTS_FILE)
    assert facts == {"command": "resume again", "earlier": [{"command": "train"}, {"command": "resume"}]}
    (tmp_path / folder.FACTS_FILE).write_text("{")
    folder.add_facts(tmp_path, {"command": "after damage"})
    assert folder.read_json(tmp_path / folder.FACTS_FILE) == {"command": "after damage", "earlier": []}
