"""Videos of the agent at play: the right frames, that move, for every engine, or a clear sentence."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gif_frames import frames_of
from imageio_ffmpeg import get_ffmpeg_exe
from toy_runs import toy_config, train

from anybatch.cli import main
from anybatch.config import EnvConfig
from anybatch.export import video

SMALL_IMAGES = {"encoder": "impala", "impala_channels": [2], "impala_features": 7}


def trained(base: Path, env: str, *, images: bool = False) -> Path:
    network = SMALL_IMAGES if images else {"hidden_sizes": [11]}
    config = toy_config(env=env, num_envs=2, total_env_steps=14, network=network, threads=1)
    return train(config, base).folder


def watched(folder: Path, out: Path, steps: int, *flags: str) -> None:
    main(["watch", str(folder), f"--out={out}", f"--steps={steps}", *flags])


def test_a_gif_of_breakout_shows_the_last_frame_of_the_stack_enlarged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = trained(tmp_path / "runs", "Breakout-v5", images=True)
    watched(folder, tmp_path / "play.gif", 30, "--frames-per-second=25")
    shown = frames_of(tmp_path / "play.gif")
    assert sum(duration for _, duration in shown) == 30 * 40
    assert len(shown) > 5 and all(picture.shape == (336, 336, 3) for picture, _ in shown)
    assert any((picture != shown[0][0]).any() for picture, _ in shown)
    assert "play.gif: 30 steps after 14 env steps" in capsys.readouterr().out


def test_a_gif_of_cartpole_is_drawn_by_gymnasium(tmp_path: Path):
    folder = trained(tmp_path / "runs", "CartPole-v1")
    watched(folder, tmp_path / "play.gif", 17)
    shown = frames_of(tmp_path / "play.gif")
    assert len(shown) > 5 and all(picture.shape == (400, 600, 3) for picture, _ in shown)
    assert any((picture != shown[0][0]).any() for picture, _ in shown)


def test_a_gif_of_mujoco_needs_no_screen(tmp_path: Path):
    """In a process of its own: a process has one way to draw."""
    folder = trained(tmp_path / "runs", "HalfCheetah-v4")
    command = [sys.executable, "-m", "anybatch", "watch", str(folder), "--out=play.gif", "--steps=3"]
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")
    environment = {name: value for name, value in os.environ.items() if name not in screens}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(picture.shape == (480, 480, 3) for picture, _ in frames_of(tmp_path / "play.gif"))


def test_a_gif_of_coinrun_has_a_frame_for_each_step_in_color(tmp_path: Path):
    folder = trained(tmp_path / "runs", "procgen-easy:coinrun", images=True)
    watched(folder, tmp_path / "videos" / "play.gif", 23)
    shown = frames_of(tmp_path / "videos" / "play.gif")
    assert sum(duration for _, duration in shown) == 23 * 30
    assert len(shown) > 11 and shown[0][0].shape == (320, 320, 3)
    assert any((picture[..., 0] != picture[..., 1]).any() for picture, _ in shown)


@pytest.fixture
def custom_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "support"))


@pytest.mark.usefixtures("custom_envs")
def test_a_gymnasium_environment_without_images_is_drawn_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = trained(tmp_path / "runs", "drawn_envs:Drawn-v0")
    watched(folder, tmp_path / "play.gif", 25, "--frames-per-second=20")
    shown = frames_of(tmp_path / "play.gif")
    grays = [int(picture[0, 0, 0]) for picture, _ in shown]
    # Ten steps, the final observation of the reset step, and on: 11 pictures from 0 to 200.
    assert grays == [*range(0, 201, 20), *range(0, 201, 20), 0, 20, 40]
    assert shown[0][0].shape == (330, 550, 3)
    assert "mean return 10 over 2 episodes that ended" in capsys.readouterr().out


@pytest.mark.usefixtures("custom_envs")
def test_an_mp4_has_a_frame_for_each_step_and_even_sides(tmp_path: Path):
    folder = trained(tmp_path / "runs", "drawn_envs:Drawn-v0")
    watched(folder, tmp_path / "play.mp4", 25)
    command = [get_ffmpeg_exe(), "-i", tmp_path / "play.mp4", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert "550x330" in done.stderr.decode() and "30 fps" in done.stderr.decode()
    pictures = np.frombuffer(done.stdout, np.uint8).reshape(-1, 330, 550, 3)
    assert len(pictures) == 25
    assert all(abs(picture.mean() - 20 * (i % 11)) < 8 for i, picture in enumerate(pictures))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(words)
    err = capsys.readouterr().err
    assert stop.value.code == 2 and len(err.splitlines()) == 1
    return err


@pytest.mark.usefixtures("custom_envs")
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("drawn_envs:Blind-v0", "its render modes have no rgb_array"),
        ("drawn_envs:NoDisplay-v0", "cannot be drawn: no display here"),
        ("toy:Match", "toy:Match cannot be drawn: it shows no images, and Gymnasium does not have it"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    env: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = trained(tmp_path / "runs", env)
    assert said in refused(capsys, "watch", str(folder), f"--out={tmp_path / 'play.gif'}")


@pytest.mark.parametrize("env", ["gym:CartPole-v1", "CartPole-v1"])
def test_a_missing_renderer_is_named_with_the_command_that_installs_it(
    env: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    folder = trained(tmp_path / "runs", env)
    monkeypatch.setitem(sys.modules, "pygame", None)
    said = refused(capsys, "watch", str(folder), f"--out={tmp_path / 'play.gif'}")
    assert "CartPole-v1 cannot be drawn" in said and "gymnasium[classic-control]" in said


@pytest.mark.parametrize(
    ("module", "out", "said"),
    [
        ("PIL", "play.gif", "a GIF needs the package pillow: install it with pip install 'anybatch[video]'"),
        (
            "imageio_ffmpeg",
            "play.mp4",
            "an MP4 needs the package imageio-ffmpeg: install it with pip install",
        ),
    ],
)
def test_a_missing_writer_is_named_with_the_extra_that_has_it(
    module: str,
    out: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    folder = trained(tmp_path / "runs", "toy:Pixels", images=True)
    monkeypatch.setitem(sys.modules, module, None)
    assert said in refused(capsys, "watch", str(folder), f"--out={tmp_path / out}")


def test_other_names_and_numbers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = str(trained(tmp_path / "runs", "toy:Pixels", images=True))
    assert "must end in .gif or .mp4" in refused(capsys, "watch", folder, f"--out={tmp_path / 'play.avi'}")
    out = f"--out={tmp_path / 'play.gif'}"
    assert "--steps 0" in refused(capsys, "watch", folder, out, "--steps=0")
    blocked = tmp_path / "file"
    blocked.touch()
    assert "could not be written" in refused(capsys, "watch", folder, f"--out={blocked / 'play.gif'}")


def test_pictures_are_enlarged_without_smoothing():
    stack = np.zeros((4, 84, 84), dtype=np.uint8)
    stack[-1, 2, 3] = 200
    picture = video.picture(stack)
    assert picture.shape == (336, 336, 3)
    assert (picture[8:12, 12:16] == 200).all() and picture.sum() == 200 * 16 * 3
    colors = np.zeros((3, 64, 400), dtype=np.uint8)
    colors[1] = 7
    assert video.picture(colors).shape == (320, 2000, 3)
    assert (video.picture(colors) == [0, 7, 0]).all()


def test_no_screen_is_needed(monkeypatch: pytest.MonkeyPatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")  # restored afterwards, also where it is not set
        monkeypatch.delenv(name)
    video.make_drawn("CartPole-v1", EnvConfig(), seed=1).env.close()
    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
