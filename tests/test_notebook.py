"""The library in a notebook: a real kernel runs real cells."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

CELLS = (
    """
import os, signal, threading, time
from pathlib import Path
import numpy as np
import anybatch
signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
before = [signal.getsignal(number) for number in signals]
small = dict(env="toy:Match", num_envs=4, num_steps=8, network={"hidden_sizes": [8]},
             evaluation={"num_envs": 2}, record={"tensorboard": False})
""",
    "run = anybatch.train('cartpole-ppo-ewma', progress=True, total_env_steps=2_000, **small)",
    "quiet = anybatch.train('cartpole-ppo-ewma', total_env_steps=200, **small)",
    "curve = run.returns(); bool(len(curve.env_steps) > 10 and np.isfinite(curve.values).all())",
    "agent = anybatch.load(run.folder); agent.act(np.eye(5)).shape, int(agent.act(np.eye(5)[2])) in range(5)",
    "[signal.getsignal(number) for number in signals] == before",
    # The kernel's interrupt button sends this signal.
    """
def press_the_button():
    while not any(path.stat().st_size for path in Path("stopped").glob("*/metrics.jsonl")):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press_the_button, daemon=True).start()
try:
    anybatch.train('cartpole-ppo-ewma', total_env_steps=10**9, run_dir="stopped", **small)
except KeyboardInterrupt as stopped:
    print(stopped)
""",
    "anybatch.resume('stopped', total_env_steps=50_000).finished",
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[NotebookNode]]:
    """What each cell shows after it ran."""
    folder: Path = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


def shown(cell: list[NotebookNode]) -> list[str]:
    """The plain text of all that a cell shows, printed lines included."""
    return [output.text if output.output_type == "stream" else output.data["text/plain"] for output in cell]


def test_progress_is_one_line_of_the_cell_that_changes(outputs: list[list[NotebookNode]]):
    lines = [output.data["text/plain"] for output in outputs[1] if output.output_type == "display_data"]
    (training,) = [line for line in lines if line.startswith("toy:Match on ")]
    assert re.search(r": 2,\d{3} of 2,000 env steps \(100%\) · SPS .* · return \(last 100\) ", training)
    assert "learning rate" in "".join(shown(outputs[1]))  # the plan, before it


def test_a_quiet_run_leaves_its_cell_empty(outputs: list[list[NotebookNode]]):
    assert outputs[2] == []


def test_curves_and_actions_are_there(outputs: list[list[NotebookNode]]):
    assert shown(outputs[3]) == ["True"]
    assert shown(outputs[4]) == ["((5,), True)"]


def test_the_kernel_has_its_signal_handlers_back_and_an_interrupt_saves(outputs: list[list[NotebookNode]]):
    assert shown(outputs[5]) == ["True"]
    (said,) = shown(outputs[6])
    assert said.startswith("Stopped. Continue with: anybatch resume ")
    assert shown(outputs[7]) == ["True"]
