"""The peers: what each needs, in a venv of its own, and what it cannot do."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from work import Work

HERE = Path(__file__).parent
VENVS = HERE / ".peers"
CONSTRAINTS = HERE.parent / "constraints.txt"
"""Versions of torch and the engines are ours; torch is a CPU build where the package index has one."""
JAX = ("jax==0.10.2", "jaxlib==0.10.2")
GYMNASIUM = "gymnasium[mujoco,box2d]"
"""Everything that Stable-Baselines3 and sbx run on, but Atari."""


def has_no_pqn(work: Work) -> str | None:
    return "it has no PQN" if work.algorithm == "pqn" else None


def has_own_environments_only(work: Work) -> str | None:
    if work.encoder == "nature":
        return "it has neither Atari nor a convolutional network"
    return "its HalfCheetah is that of Brax, another simulation" if "HalfCheetah" in work.env else None


@dataclass(frozen=True)
class Peer:
    """Another trainer."""

    title: str
    script: str
    requirements: tuple[str, ...]
    cannot: Callable[[Work], str | None]
    """Why it cannot do a work; None if it can."""


PEERS = {
    "sb3": Peer(
        "Stable-Baselines3",
        "peer_sb3.py",
        ("stable-baselines3==2.9.2", "torch==2.13.0", GYMNASIUM, "envpool"),
        has_no_pqn,
    ),
    "sbx": Peer(
        "sbx", "peer_sb3.py", ("sbx-rl==0.28.0", *JAX, "torch==2.13.0", GYMNASIUM, "envpool"), has_no_pqn
    ),
    # trap: rejax 0.1.3 allows gymnax 1.0, whose steps return other values than it expects.
    "rejax": Peer(
        "rejax", "peer_rejax.py", ("rejax==0.1.3", "gymnax==0.0.9", *JAX), has_own_environments_only
    ),
}


def python_of(name: str) -> Path:
    """The interpreter of a peer's venv, which is made where it is missing or was made for something else."""
    folder = VENVS / name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(PEERS[name].requirements) + "\n" + CONSTRAINTS.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"{name}: installing {', '.join(PEERS[name].requirements)}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(CONSTRAINTS), *PEERS[name].requirements], check=True)
    stamp.write_text(wanted)
    return python
