"""What `anybatch train` prints at its end."""

from pathlib import Path

import pytest

from anybatch.cli import main
from anybatch.cli.training import bars, sparkline
from anybatch.runs import log


def rows(*returns: tuple[int, float]) -> list[dict[str, float]]:
    return [
        {"env_steps": env_steps, "charts/episodic_return": mean, "charts/episodes": 1}
        for env_steps, mean in returns
    ]


def test_a_curve_in_one_line():
    assert bars([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert bars([5, 5]) == "▁▁"
    assert sparkline(rows((10, 1.0), (20, 8.0))) == "▁█  1 → 8"
    assert sparkline(rows((10, 1.0))) == "" and sparkline([]) == ""


def test_a_training_ends_with_its_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    flags = ["--total-env-steps", "3000", "--run-dir", str(tmp_path), "--evaluation.num-envs", "1"]
    main(["train", "--preset", "cartpole-ppo", *flags])
    said = capsys.readouterr().out
    (curve,) = [line for line in said.splitlines() if line.startswith("curve ")]
    (run,) = tmp_path.iterdir()
    assert curve == f"curve       {sparkline(log.read(run))}"
    assert f"anybatch report {run}" in said
