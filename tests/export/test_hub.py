"""Policies as folders for the Hub, which its own client uploads to a server on this machine."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import constants
from local_hub import TOKEN, LocalHub, served
from safetensors import safe_open

import anybatch
from anybatch.cli import main
from anybatch.export import hub_folder
from anybatch.runs.record import RunRecord

SETTINGS: dict[str, Any] = {
    "env": "toy:Match",
    "num_envs": 4,
    "num_steps": 8,
    "total_env_steps": 200,
    "evaluation": {"num_envs": 3, "every_env_steps": 100},
    "network": {"hidden_sizes": [8]},
    "record": {"tensorboard": False},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return anybatch.train("cartpole-ppo-ewma", run_dir=tmp_path / "runs", **SETTINGS).folder


def use_address(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Let the client know this address only; it has read the usual ones when it was imported."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + template)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    """A server of our own, and a client that knows no other and no account of this machine."""
    with served() as local:
        use_address(monkeypatch, local.address)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield local


def failing(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    assert stopped.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]  # before it the client shows its progress
    assert said.startswith(f"anybatch {words[0]}: ")
    return said


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_folder_has_a_card_weights_and_config_and_nothing_else(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "new" / "hub"
    main(["export", str(run), "--hub", str(folder), "--no-video"])
    assert f"{folder}: 7 files, PPO-EWMA on toy:Match" in capsys.readouterr().out
    steps = f"checkpoints/{next((folder / 'checkpoints').iterdir()).name}"
    saved = {f"{steps}/{name}" for name in ("tensors.safetensors", "state.json", "checksums.json")}
    assert files_in(folder) == {"README.md", "config.json", "plan.json", "evaluation.json"} | saved
    with safe_open(folder / steps / "tensors.safetensors", "pt") as weights:
        assert all(name.startswith("shared/learner/network/") for name in weights.keys())  # noqa: SIM118
    assert [path.name for path in folder.parent.iterdir()] == ["hub"]
    assert str(tmp_path) not in "".join((folder / name).read_text() for name in files_in(folder) - saved)


def test_the_card_has_what_the_hub_reads_and_the_protocol(run: Path, tmp_path: Path):
    folder = tmp_path / "hub"
    main(["export", str(run), "--hub", str(folder), "--no-video", "--evaluation.num-envs", "5"])
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    (result,) = card.data.eval_results or []
    played = json.loads((folder / "evaluation.json").read_text())
    mean, _, deviation = str(result.metric_value).partition(" +/- ")
    assert float(mean) == pytest.approx(played["mean_return"], abs=0.005) and float(deviation) >= 0
    assert result.task_type == "reinforcement-learning" and result.dataset_name == "toy:Match"
    assert card.data.library_name == "anybatch" and "toy:Match" in (card.data.tags or [])
    assert "over 5 episodes, sampled actions, at most 27,000 decisions each" in card.text
    assert "learning rate" in card.text and "proximal EWMA decay" in card.text
    assert f"after {RunRecord(run).load_checkpoint().env_steps:,} env steps" in card.text
    assert "optimistic" not in card.text


def test_the_card_says_where_the_evaluation_differs_from_the_training(run: Path, tmp_path: Path):
    folder = tmp_path / "hub"
    flags = ["--threads", "2", "--env-config.max-episode-steps", "3"]
    main(["export", str(run), "--hub", str(folder), "--no-video", *flags])
    text = (folder / "README.md").read_text()
    assert "evaluated with other settings than it was trained with: max_episode_steps = 3." in text
    assert "4 envs × 8 steps" in text and RunRecord(folder).config == RunRecord(run).config


def test_the_card_tells_the_seed_of_the_evaluation_from_that_of_the_training(run: Path, tmp_path: Path):
    text: dict[str, str] = {}
    for name, flags in {"same": [], "other": ["--seed", "7"]}.items():
        best = ["--checkpoint", "best", *flags]
        main(["export", str(run), "--hub", str(tmp_path / name), "--no-video", *best])
        text[name] = (tmp_path / name / "README.md").read_text()
    trained = RunRecord(run).config.seed
    assert trained != 7
    assert f"evaluation seed {trained}, after" in text["same"] and "optimistic" in text["same"]
    assert "--seed" not in text["same"]
    assert "evaluation seed 7, after" in text["other"] and "optimistic" not in text["other"]
    assert f"of training with seed {trained}." in text["other"]
    assert "anybatch evaluate NAME --seed 7\n" in text["other"]


def test_names_that_yaml_would_misread_are_quoted(run: Path, tmp_path: Path):
    config = json.loads((run / "config.json").read_text())
    folder = tmp_path / "hub"
    main(["export", str(run), "--hub", str(folder), "--no-video", "--checkpoint", "best"])
    text = (folder / "README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["tags"][-1] == config["env"] == "toy:Match"
    assert "optimistic" in text


def test_a_folder_plays_as_its_run_does_but_cannot_be_resumed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "hub"
    main(["export", str(run), "--hub", str(folder), "--no-video", "--onnx", str(tmp_path / "agent.onnx")])
    assert (folder / "policy.onnx").read_bytes() == (tmp_path / "agent.onnx").read_bytes()
    capsys.readouterr()
    results = []
    for place in (run, folder):
        main(["evaluate", str(place), "--json"])
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["returns"] == results[1]["returns"]
    said = failing(capsys, "resume", str(folder), "--total-env-steps", "400")
    assert "holds a policy to evaluate, without the state that a resume needs" in said


def test_a_folder_is_about_the_checkpoint_that_was_asked_for(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    earlier = str(RunRecord(run).load_checkpoint().env_steps)
    anybatch.resume(run, total_env_steps=2_000, optimizer={"learning_rate": 0.1})
    main(["export", str(run), "--hub", str(tmp_path / "hub"), "--no-video", "--checkpoint", earlier])
    capsys.readouterr()
    returns = []
    for checkpoint in (earlier, "newest"):
        main(["evaluate", str(run), "--json", "--checkpoint", checkpoint])
        returns.append(json.loads(capsys.readouterr().out)["returns"])
    assert returns[0] != returns[1]
    assert json.loads((tmp_path / "hub" / "evaluation.json").read_text())["returns"] == returns[0]


def test_a_folder_has_a_video_where_the_environment_can_be_drawn(tmp_path: Path):
    changes = SETTINGS | {"env": "gym:CartPole-v1", "total_env_steps": 32}
    run = anybatch.train("cartpole-ppo-ewma", run_dir=tmp_path / "runs", **changes).folder
    folder = tmp_path / "hub"
    main(["export", str(run), "--hub", str(folder)])
    assert (folder / "replay.mp4").stat().st_size > 1000
    assert "(replay.mp4)" in (folder / "README.md").read_text()


def test_what_cannot_be_written_leaves_nothing_behind(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    before = sorted(path.name for path in tmp_path.iterdir())
    said = failing(capsys, "export", str(run), "--hub", str(tmp_path / "hub"), "--checkpoint", "7")
    assert "has no checkpoint at 7" in said
    (taken := tmp_path / "taken").mkdir()
    assert "exists already" in failing(capsys, "export", str(run), "--hub", str(taken))
    taken.rmdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_is_pushed_is_pulled_and_plays_the_same(
    run: Path, hub: LocalHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    main(["push", str(run), "user/match", "--no-video", "--private"])
    said = capsys.readouterr().out
    assert f"published   {hub.address}/user/match" in said and "anybatch pull user/match" in said
    assert hub.private == {"user/match": True} and hub.messages == ["Policy of PPO on toy:Match"]
    assert "anybatch pull user/match --out match" in hub.files("user/match")["README.md"].decode()

    out = tmp_path / "pulled"
    main(["pull", "user/match", "--out", str(out)])
    assert f"anybatch evaluate {out}" in capsys.readouterr().out
    assert {name: (out / name).read_bytes() for name in files_in(out)} == hub.files("user/match")
    results = []
    for place in (run, out):
        main(["evaluate", str(place), "--json"])
        results.append(json.loads(capsys.readouterr().out)["returns"])
    assert results[0] == results[1]
    assert anybatch.load(out).env_steps == anybatch.load(run).env_steps


def test_a_name_that_is_taken_is_refused_unless_it_is_an_update(
    run: Path, hub: LocalHub, capsys: pytest.CaptureFixture[str]
):
    main(["push", str(run), "user/match", "--no-video"])
    before = hub.files("user/match")
    assert "user/match exists already; --update" in failing(
        capsys, "push", str(run), "user/match", "--no-video"
    )
    assert hub.files("user/match") is before
    anybatch.resume(run, total_env_steps=600)
    main(["push", str(run), "user/match", "--no-video", "--update"])
    now = hub.files("user/match")
    assert len(now) == len(before) and set(now) != set(before)  # one checkpoint, the later one


def test_a_folder_is_pushed_as_it_is(run: Path, hub: LocalHub, tmp_path: Path):
    folder = tmp_path / "hub"
    main(["export", str(run), "--hub", str(folder), "--no-video"])
    card = (folder / "README.md").read_text() + "\nWritten by hand.\n"
    (folder / "README.md").write_text(card)
    (folder / "notes.txt").write_text("not part of a policy")
    main(["push", str(folder), "user/edited"])
    assert hub.files("user/edited")["README.md"].decode() == card
    assert set(hub.files("user/edited")) == files_in(folder) - {"notes.txt"}


def test_only_files_of_a_policy_are_downloaded_and_nothing_is_imported(
    run: Path,
    hub: LocalHub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    main(["push", str(run), "user/match", "--no-video"])
    files = hub.files("user/match")
    config = json.loads(files["config.json"])
    marker = tmp_path / "imported"
    code = f"open({str(marker)!r}, 'w').close()".encode()
    files["config.json"] = json.dumps(config | {"env": "evil_module:Env-v0"}).encode()
    files |= {"evil_module.py": code, "weights.pkl": b"x", "checkpoints/step_1/x.py": code}
    out = tmp_path / "pulled"
    monkeypatch.chdir(tmp_path)
    main(["pull", "user/match", "--out", str(out)])
    assert not {path for path in files_in(out) if path.endswith((".py", ".pkl"))}
    monkeypatch.chdir(out)
    (out / "evil_module.py").write_bytes(code)
    assert "not installed" in failing(capsys, "evaluate", ".")
    assert not marker.exists() and "evil_module" not in sys.modules


def test_a_download_that_is_no_policy_is_refused_and_leaves_nothing(
    run: Path, hub: LocalHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "pulled"
    main(["push", str(run), "user/match", "--no-video"])
    files = hub.files("user/match")
    name = next(name for name in files if name.endswith(".safetensors"))
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    said = failing(capsys, "pull", "user/match", "--out", str(out))
    assert "has no policy that this version can load" in said and "is damaged" in said
    hub.repositories["user/other"] = [{"README.md": b"a card"}]
    assert "has no policy" in failing(capsys, "pull", "user/other", "--out", str(out))
    assert not out.exists() and not list(tmp_path.glob(".aside*"))


def test_what_the_hub_refuses_is_one_sentence(
    run: Path,
    hub: LocalHub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    out = str(tmp_path / "pulled")
    assert "there is no repository user/nothing" in failing(capsys, "pull", "user/nothing", "--out", out)
    assert "the form USER/NAME" in failing(capsys, "pull", "nothing", "--out", out)
    assert "the form USER/NAME" in failing(capsys, "push", str(run), "a/b/c")
    assert "anybatch push RUN USER/NAME" in failing(capsys, "push", str(run))
    hub.repositories["user/there"] = [{}]
    said = failing(capsys, "pull", "user/there", "--out", out, "--revision", "v9")
    assert "user/there has no revision v9" in said
    (existing := tmp_path / "existing").mkdir()
    assert "exists already" in failing(capsys, "pull", "user/there", "--out", str(existing))
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "hf auth login" in failing(capsys, "push", str(run), "user/match", "--no-video")
    monkeypatch.delenv("HF_TOKEN")
    assert "you are not logged in to the Hub" in failing(capsys, "push", str(run), "user/match", "--no-video")
    assert "user/match" not in hub.repositories


@pytest.mark.usefixtures("hub")
def test_without_a_network_or_the_client_it_is_said(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    out = str(tmp_path / "pulled")
    use_address(monkeypatch, "http://127.0.0.1:9")  # nobody listens there
    assert "the Hub cannot be reached" in failing(capsys, "pull", "user/match", "--out", out)
    said = failing(capsys, "push", str(run), "user/match", "--no-video")
    assert "the Hub cannot be reached" in said and "needs a network connection" in said
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as if it were not installed
    assert "pip install 'anybatch[hub]'" in failing(capsys, "pull", "user/match", "--out", out)
    assert not Path(out).exists()


def test_a_folder_keeps_the_statistics_that_observations_are_seen_through():
    normalizer = {"count": 3.0, "mean": np.ones(2), "square_sum": np.ones(2)}
    learner = {"network": {"weight": torch.ones(2)}, "steps": {}}
    shared = {"learner": learner, "observation_normalizer": normalizer, "reward_normalizer": {}}
    kept = hub_folder.inference_state({"shared": shared, "local": {}})
    assert kept == {"learner": {"network": learner["network"]}, "observation_normalizer": normalizer}
