"""Damaged folders: a command about one ends well or with one sentence, and writes only inside the folder."""

import json
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from forked_commands import Commands
from soak_fuzz import NONSENSE, Surroundings, outcome
from soak_kills import CARTPOLE, PPG, PQN, QUEUE, SAVE, small_study, small_tuning

Record = dict[str, Any]
Damage = Callable[[Path, random.Random, Surroundings], None]
"""What is done to one file or folder."""

TEXTS = (".json", ".jsonl", ".toml", ".md", ".txt", ".journal", ".csv")


def flip(path: Path, rng: random.Random, _: Surroundings) -> None:
    content = bytearray(path.read_bytes())
    for _time in range(rng.randint(1, 8)):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def overwrite(path: Path, rng: random.Random, _: Surroundings) -> None:
    """Letters of JSON in place of others."""
    content = bytearray(path.read_bytes())
    for _time in range(rng.randint(1, 4)):
        if content:
            content[rng.randrange(len(content))] = rng.choice(b'0192[]{}",:-+.e \nntf\xff\x00\\')
    path.write_bytes(content)


def cut_off(path: Path, rng: random.Random, _: Surroundings) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randint(0, len(content))])


def grow(path: Path, rng: random.Random, _: Surroundings) -> None:
    with path.open("ab") as file:
        file.write(
            rng.choice([b"\n", b"x", b"{}\n", b"[" * 100_000, b"\xff\xfe", rng.randbytes(3000), b"null\n"])
        )


def empty(path: Path, _rng: random.Random, _: Surroundings) -> None:
    path.write_bytes(b"")


def delete(path: Path, _rng: random.Random, _: Surroundings) -> None:
    take_away(path)


def link_out(path: Path, rng: random.Random, around: Surroundings) -> None:
    was_folder = path.is_dir()
    take_away(path)
    there = around.path / ("precious" if was_folder else "home/.profile")
    path.symlink_to(
        rng.choice([there, there, there, path, around.path / "nowhere", Path("/dev/zero"), Path("/proc")])
    )


def link_to_itself_elsewhere(path: Path, rng: random.Random, around: Surroundings) -> None:
    """A link to what it was, moved out of the folder."""
    there = around.path / f"moved-{rng.randrange(10**9)}"
    shutil.move(path, there)
    path.symlink_to(there)


def hard_link(path: Path, _rng: random.Random, around: Surroundings) -> None:
    take_away(path)
    os.link(around.path / "home/.profile", path)


def fifo(path: Path, _rng: random.Random, _: Surroundings) -> None:
    take_away(path)
    os.mkfifo(path)


def unix_socket(path: Path, _rng: random.Random, _: Surroundings) -> None:
    take_away(path)
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket may have a hundred letters only
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def wrong_kind(path: Path, _rng: random.Random, _: Surroundings) -> None:
    """A folder in place of a file, or a file in place of a folder."""
    was_folder = path.is_dir()
    take_away(path)
    if was_folder:
        path.write_text("a file")
    else:
        path.mkdir()
        (path / "inner").write_text("x")


def other_values(path: Path, rng: random.Random, _: Surroundings) -> None:
    """JSON in which some values are of another type."""
    try:
        lines = (
            [json.loads(line) for line in path.read_text().splitlines()]
            if path.suffix == ".jsonl"
            else [json.loads(path.read_text())]
        )
    except ValueError:  # damaged already
        return
    for _time in range(rng.randint(1, 3)):
        if lines:
            index = rng.randrange(len(lines))
            lines[index] = replaced(lines[index], rng)
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")


def replaced(value: Any, rng: random.Random) -> Any:
    """The value with one of the values in it replaced."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: inner for name, inner in value.items() if name != key}
        if rng.random() < 0.05:
            return value | {rng.choice(NONSENSE[:40]): value[key]}
        return value | {key: replaced(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        index = rng.randrange(len(value))
        return [*value[:index], replaced(value[index], rng), *value[index + 1 :]]
    others: list[Any] = [
        None,
        True,
        -1,
        0,
        1.5,
        10**18,
        10**30,
        "text",
        "",
        [],
        {},
        [[]],
        {"a": None},
        float("nan"),
        -0.0,
        2**63,
    ]
    return rng.choice([*others, *NONSENSE[:40]])


def swap(path: Path, rng: random.Random, _: Surroundings) -> None:
    """The content of another file of the same folder."""
    others = [other for other in path.parent.iterdir() if other.is_file() and not other.is_symlink()]
    if path.is_file() and others:
        path.write_bytes(rng.choice(others).read_bytes())


OF_FILES: tuple[Damage, ...] = (
    *(flip, flip, overwrite, overwrite, cut_off, cut_off, grow, empty, delete, link_out, hard_link, fifo),
    *(unix_socket, wrong_kind, swap, link_to_itself_elsewhere),
)
OF_FOLDERS: tuple[Damage, ...] = (delete, link_out, fifo, wrong_kind, link_to_itself_elsewhere)


def take_away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def damage(folder: Path, rng: random.Random, around: Surroundings) -> list[str]:
    """Do something to some of the files. Returns what."""
    done: list[str] = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        paths = [path for path in sorted(folder.rglob("*")) if "source" not in path.relative_to(folder).parts]
        # Folders have few files that everything reads and many checkpoints: choose among names first.
        name = rng.choice(sorted({path.name if path.suffix in TEXTS else path.suffix for path in paths}))
        path = rng.choice([path for path in paths if name in (path.name, path.suffix)])
        if path.is_file() and path.suffix in (".json", ".jsonl") and rng.random() < 0.4:
            kind: Damage = other_values
        else:
            kind = rng.choice(OF_FILES if path.is_file() else OF_FOLDERS)
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            continue  # done to it already
        kind(path, rng, around)
        done.append(f"{kind.__name__} {path.relative_to(folder)}")
    return done


BEST = ("--evaluation.every-env-steps=1000",)
RUNS = {
    "ppo": (*CARTPOLE, *QUEUE, *BEST, "--total-env-steps=2560"),
    "ppg": (*SAVE, *PPG, "--total-env-steps=480"),
    "pqn": (*CARTPOLE, *PQN, *BEST, "--total-env-steps=4096"),
}


def made(commands: Commands, sources: Path) -> dict[str, Path]:
    """A whole folder of each kind, made once."""
    sources.mkdir(exist_ok=True)
    lines = {
        name: ["train", f"--run-dir={sources}", f"--name={name}", *flags] for name, flags in RUNS.items()
    }
    (sources / "a").mkdir(exist_ok=True)
    (sources / "b").mkdir(exist_ok=True)
    lines["study"] = small_study(sources).words(sources / "a")
    lines["tuning"] = small_tuning(sources).words(sources / "b")
    lines["hub"] = ["export", str(sources / "ppo"), "--hub", str(sources / "hub"), "--no-video"]
    folders = {name: sources / name for name in lines} | {
        "study": sources / "a" / "out",
        "tuning": sources / "b" / "out",
    }
    for name, words in lines.items():
        if not (sources / f"{name}.made").exists():
            take_away(folders[name])
            with commands.start(words) as command:
                assert command.wait(300) == 0, command.said()
            (sources / f"{name}.made").touch()
    return folders


def lines_about(kind: str, folder: Path, sources: Path, rng: random.Random) -> list[list[str]]:
    """Command lines about a damaged folder."""
    here = str(folder)
    page = ["report", here]
    if kind == "study":
        return [rng.choice([page, ["study", str(sources / "study.toml"), "--out", here, "--jobs", "1"]])]
    if kind == "tuning":
        search = small_tuning(sources).words(folder.parent)
        search[search.index("--out") + 1] = here
        return [rng.choice([page, search])]
    playing = [["evaluate", here], ["evaluate", here, "--checkpoint", "best"]]
    if rng.random() < 0.1:  # which takes ten times as long
        playing = [["export", here, "--onnx", str(folder.parent / "a.onnx")]]
    if kind == "hub":
        return [rng.choice(playing)]
    more = {"ppo": 3200, "ppg": 640, "pqn": 6000}[kind]
    picture = ["plot", here, "--out", str(folder.parent / "a.svg")]
    others = [page, page, picture, ["advise", here], *playing]
    return [rng.choice(others), ["resume", here, f"--total-env-steps={more}"]]


def folders(
    commands: Commands, count: int, done: Sequence[Record], work: Path, seed: int
) -> Iterator[Record]:
    """Copies of whole folders, damaged, and then used."""
    sources = made(commands, work / "sources")
    case = 1 + max((record["case"] for record in done), default=-1)
    for number in range(case, count):
        rng = random.Random(f"{seed} folder {number}")
        kind = rng.choices(list(sources), weights=[4, 3, 3, 1, 1, 1])[0]
        around = Surroundings(work / f"folder-{number}")
        folder = Path(shutil.copytree(sources[kind], around.inside / "folder", symlinks=True))
        what = damage(folder, rng, around)
        for words in lines_about(kind, folder, work / "sources", rng):
            record = outcome(commands, words, around, lambda: None)
            yield {"case": number, "kind": kind, "damage": what} | record
        shutil.rmtree(around.path)
