"""Command lines that nobody would type: each ends well or with one sentence, and writes only where it may."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from forked_commands import Commands

from anybatch import presets
from anybatch.cli import main
from anybatch.cli.flags import NewRunFlags, PlanFlags, TrainFlags
from anybatch.cli.parser import Flag, flag_table
from anybatch.config import PPGConfig, PPOConfig, PQNConfig
from anybatch.dial.other_trainers import TRAINERS
from anybatch.runs import log

Record = dict[str, Any]

PLAN_SECONDS = 20
TRAINING_SECONDS = 180
LONGEST_LINE = 2000
NONSENSE = (
    *("0", "-1", "1.5", "nan", "inf", "-inf", "1e400", "-1e400", "9" * 400, "9" * 5000, "1_0", "1/4", "0x10"),
    *(
        "",
        " ",
        "none",
        "None",
        "auto",
        "true",
        "½",
        "١٢",
        "1e-300",
        "1e3",
        "1,000",
        "[1]",
        "{}",
        "()",
        "'",
        "1j",
    ),
    *("odd\udcff", "ä\n", "\x1b[31m", "..", "../..", "/", "/dev/zero", "a" * 5000, "[" * 3000, "=", "a=b"),
)
ENVS = (
    *("toy:Match", "toy:Target", "toy:Corridor", "toy:Lines", "native:CartPole-v1", "native:Acrobot-v1"),
    *("CartPole-v1", "Pendulum-v1", "minatar:Breakout", "minatar:SpaceInvaders", "minatar:Seaquest"),
)
OTHER_ENVS = (
    "Breakout-v5",
    "procgen:coinrun",
    "HalfCheetah-v4",
    "my_package:MyEnv-v0",
    "json:loads",
    ":",
    "",
)
CONFIGS = (PPOConfig, PPGConfig, PQNConfig)
EXCLUDED = {"actors", "ray-address", "overlap", "record.wandb", "record.trackio", "run-dir", "name", "ranks"}
"""Flags of a training that reach the network, take minutes to start, or are given anyway."""


class TooLong(BaseException):
    """A command that did not end."""


def plans(count: int, done: Sequence[Record], work: Path, seed: int) -> Iterator[Record]:
    """`anybatch plan` in this process, again and again."""
    place = work / "plans"
    place.mkdir(exist_ok=True)
    for case in range(len(done), count):
        rng = random.Random(f"{seed} plan {case}")
        words = plan_from_words(rng, place) if rng.random() < 0.3 else plan_words(rng, place)
        yield {"case": case} | outcome_here(words)


def plan_words(rng: random.Random, place: Path) -> list[str]:
    flags = flag_table(PlanFlags(config=rng.choice(CONFIGS)().pinned()))
    chosen = [flag for flag in rng.choices(list(flags.values()), k=rng.randint(0, 6)) if flag.name != "json"]
    words = [word for flag in chosen for word in flag_words(flag, rng, most=10**9)]
    if rng.random() < 0.5:
        words += ["--preset", preset_word(rng, place)]
    words += ["--json"] if rng.random() < 0.3 else []
    return ["plan", *scrambled(words, rng)]


def preset_word(rng: random.Random, place: Path) -> str:
    """A preset's name, or a file: another preset with some changed settings, or with nonsense in it."""
    name = rng.choice(presets.names())
    if rng.random() < 0.5:
        return name
    flags = list(flag_table(TrainFlags(config=rng.choice(CONFIGS)().pinned())).values())
    lines = [f'extends = "{name}"', 'description = "x"'] if rng.random() < 0.9 else []
    for flag in rng.choices(flags, k=rng.randint(0, 4)):
        value = rng.choice([plausible(flag.type, rng, 10**6)[-1:] or ["x"], [rng.choice(NONSENSE)]])[0]
        lines.append(f"{flag.name.replace('-', '_')} = {rng.choice([value, json.dumps(value)])}")
    file = place / "preset.toml"
    file.write_bytes(damaged("\n".join(lines).encode(errors="surrogateescape"), rng, chance=0.2))
    return str(file)


def plan_from_words(rng: random.Random, place: Path) -> list[str]:
    trainer = rng.choice(list(TRAINERS.values()))
    settings: dict[str, Any] = dict.fromkeys(trainer.read, 8) if rng.random() < 0.8 else {}
    settings |= {trainer.learning_rate: 1e-3} if settings else {}
    for key in rng.choices([*trainer.known, "nonsense", ""], k=rng.randint(0, 4)):
        settings[key] = rng.choice([*NONSENSE, 1, 2, 64, 0.5, 1e-4, True, None, [1, 2], {"a": 1}, 10**30])
    if rng.random() < 0.4:
        file = place / f"settings{rng.choice(['.json', '.yaml', '.YML'])}"
        content = {trainer.name: settings} if rng.random() < 0.3 else settings
        file.write_bytes(damaged(json.dumps(content).encode(), rng, chance=0.4))
        words = [str(file)]
    else:
        words = [f"{rng.choice(['', '--'])}{key}={value}" for key, value in settings.items()]
    words += ["--num-envs", number(rng, 10**6) if rng.random() < 0.9 else rng.choice(NONSENSE)]
    words += ["--json"] if rng.random() < 0.3 else []
    return ["plan", "--from", trainer.name if rng.random() < 0.95 else rng.choice(NONSENSE), *words]


def damaged(content: bytes, rng: random.Random, chance: float) -> bytes:
    """Bytes, of which some are changed or missing by chance."""
    if not content or rng.random() > chance:
        return content
    changed = bytearray(content)
    for _ in range(rng.randint(1, 5)):
        changed[rng.randrange(len(changed))] = rng.choice(b"0129[]{}\"'\\:,&*!|>-\n\t\xff\x00ae.")
    return bytes(changed[: rng.randint(1, len(changed))]) if rng.random() < 0.3 else bytes(changed)


def flag_words(flag: Flag, rng: random.Random, most: int) -> list[str]:
    """A flag as somebody may type it, with a value that may fit, or with nonsense."""
    name = f"--{flag.name}"
    if rng.random() < 0.1:
        name = rng.choice([name[:-1], name.replace("-", "_"), name.upper(), f"-{flag.name}", f"{name}."])
    if flag.type is bool:
        group, dot, last = flag.name.rpartition(".")
        words = [rng.choice([f"--{flag.name}", f"--{group}{dot}no-{last}"])]
        return words if rng.random() < 0.95 else [f"{words[0]}=1"]
    values = plausible(flag.type, rng, most) if rng.random() < 0.8 else [rng.choice(NONSENSE)]
    if flag.name == "env":
        values = [rng.choice(ENVS if rng.random() < 0.8 else OTHER_ENVS)]
    return [f"{name}={values[0]}"] if len(values) == 1 and rng.random() < 0.5 else [name, *values]


def plausible(kind: Any, rng: random.Random, most: int) -> list[str]:
    """Words of a value that fits the type of a flag."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return plausible(rng.choice(arguments), rng, most)
    if origin is Literal:
        return [str(rng.choice(arguments))]
    if origin is tuple:
        return [word for _ in range(rng.randint(1, 3)) for word in plausible(arguments[0], rng, most)]
    if origin is dict:
        return [rng.choice(["num_levels", "frame_skip", "nonsense"]), number(rng, most)]
    if kind is int:
        return [number(rng, most)]
    if kind is float:
        return [f"{10 ** rng.uniform(-8, 3):.3g}"]
    return [{bool: "true", types.NoneType: "none"}.get(kind) or rng.choice(NONSENSE)]


def number(rng: random.Random, most: int) -> str:
    """A whole number, small ones as often as large ones."""
    return str(min(most, round(2 ** rng.uniform(0, most.bit_length()))))


def scrambled(words: list[str], rng: random.Random) -> list[str]:
    """The words, of which one is sometimes missing, doubled or elsewhere."""
    words = list(words)
    if words and rng.random() < 0.1:
        word = words.pop(rng.randrange(len(words)))
        for _ in range(rng.randint(0, 2)):
            words.insert(rng.randint(0, len(words)), word)
    return words


def outcome_here(words: list[str]) -> Record:
    """What a command in this process ends with."""

    def give_up(*_: Any) -> None:
        raise TooLong

    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    problem = None
    started = time.monotonic()
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PLAN_SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(words)
    except SystemExit as stop:
        code = stop.code or 0
    except TooLong:
        problem = "hang"
    except BaseException:
        problem = traceback.format_exc()[-3000:]
    finally:
        signal.alarm(0)
    problem = problem or problem_with(words, code, out.getvalue(), err.getvalue())
    seconds = round(time.monotonic() - started, 2)
    return described(words, code, problem) | {"seconds": seconds}


def described(words: Sequence[str], code: Any, problem: str | None) -> Record:
    """A line of the record: the words only where something went wrong."""
    record: Record = {"code": code, "bad": problem is not None}
    return (
        record | {"words": [word[:LONGEST_LINE] for word in words], "problem": problem} if problem else record
    )


def problem_with(words: Sequence[str], code: Any, out: str, err: str) -> str | None:
    """What is wrong with the end of a command, if anything is."""
    lines = err.splitlines()
    if "Traceback" in err or "Traceback" in out:
        return err[-3000:]
    if code not in (0, 2):
        return f"exit code {code}: {err[-1000:]}"
    if code == 2 and (not lines or not lines[-1].startswith(f"anybatch {words[0]}: ")):
        return f"the last line is no sentence of the command: {err[-1000:]!r}"
    if code == 2 and len(lines[-1]) > LONGEST_LINE:
        return f"the sentence has {len(lines[-1])} letters: {lines[-1][:300]}"
    if any("Warning:" in line for line in lines):
        return f"a warning of Python: {err[-1000:]}"
    if code == 0 and not out:
        return "it said nothing"
    if code == 0 and "--json" in words:
        return problem_with_json(out)
    return None


def problem_with_json(out: str) -> str | None:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} in JSON")

    try:
        json.loads(out, parse_constant=refuse)
    except ValueError as error:
        return f"{error}: {out[:300]}"
    return None


class Surroundings:
    """A user's files and folders, which commands must leave alone, around the folder that they may change."""

    def __init__(self, path: Path):
        self.path, self.inside = path, path / "inside"
        for folder in ("home/.config", "precious", "inside"):
            (path / folder).mkdir(parents=True, exist_ok=True)
        (path / "home/.profile").write_bytes(b"export PATH\nthe last line, without an end")
        (path / "precious/notes.txt").write_text("precious")
        self.variables = {
            "HOME": str(path / "home"),
            # Libraries keep caches there.
            "MPLCONFIGDIR": str(path.parent / "matplotlib"),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        }

    def state(self) -> dict[str, tuple[Any, ...]]:
        """Everything but what is in `inside`."""
        return {
            str(path.relative_to(self.path)): state_of(path)
            for path in sorted(self.path.rglob("*"))
            if self.inside not in path.parents
        }


def state_of(path: Path) -> tuple[Any, ...]:
    status = path.lstat()
    if path.is_symlink():
        return ("link", os.readlink(path))
    if path.is_file():
        return ("file", status.st_mtime_ns, status.st_size, path.read_bytes())
    return ("folder", sorted(os.listdir(path)) if path.name != "inside" else None)


def outcome(
    commands: Commands, words: list[str], around: Surroundings, check: Callable[[], str | None]
) -> Record:
    """What a command in a process of its own ends with, and whether it changed anything around."""
    before = around.state()
    started = time.monotonic()
    with commands.start(words, **around.variables) as command:
        try:
            code: Any = command.wait(TRAINING_SECONDS)
            problem = problem_with(words, code, *command.said())
        except AssertionError:
            code, problem = None, "hang"
        except UnicodeDecodeError as error:
            code, problem = None, f"output: {error}"
    after = around.state()
    written = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    if written:
        problem = f"wrote outside: {written[:10]}"
    record = described(words, code, problem or check()) | {"command": words[0]}
    return record | {"seconds": round(time.monotonic() - started, 2)}


def trainings(
    commands: Commands, count: int, done: Sequence[Record], work: Path, seed: int
) -> Iterator[Record]:
    """`anybatch train`, and often what one does with a run afterwards."""
    case = 1 + max((record["case"] for record in done), default=-1)
    for number_ in range(case, count):
        rng = random.Random(f"{seed} training {number_}")
        around = Surroundings(work / f"training-{number_}")
        yield {"case": number_} | outcome(commands, training_words(rng, around.inside), around, lambda: None)
        folder = around.inside / "run"
        if (folder / "result.json").exists():
            for words in afterwards(rng, folder):
                check = partial(counted_twice, folder) if words[0] == "resume" else lambda: None
                yield {"case": number_} | outcome(commands, words, around, check)
        shutil.rmtree(around.path)


def training_words(rng: random.Random, inside: Path) -> list[str]:
    """Some iterations of a small run."""
    preset = rng.choice(
        ["cartpole-ppo-ewma", "cartpole-ppo", "cartpole-pqn", "minatar-ppo-ewma", "minatar-pqn"]
    )
    num_envs, num_steps = rng.randint(1, 9), rng.choice([1, 2, 5, 8, 16, 64])
    words = ["train", f"--run-dir={inside}", "--name=run", f"--preset={preset}", f"--env={rng.choice(ENVS)}"]
    words += [f"--num-envs={num_envs}", "--evaluation.num-envs=1", "--threads=1"]
    words += [f"--num-steps={num_steps}"] if rng.random() < 0.7 else []
    words += [f"--total-env-steps={num_envs * num_steps * rng.choice([1, 4, 12])}"]
    return words + more_words(rng, NewRunFlags(config=presets.load(preset).config), rng.randint(0, 4))


def more_words(rng: random.Random, flags: NewRunFlags, number_: int) -> list[str]:
    known = [flag for flag in flag_table(flags).values() if flag.name not in EXCLUDED]
    return [word for flag in rng.choices(known, k=number_) for word in flag_words(flag, rng, most=64)]


def afterwards(rng: random.Random, folder: Path) -> Iterator[list[str]]:
    """Some commands about a run."""
    if rng.random() < 0.6:
        reached = max((row["env_steps"] for row in log.read(folder)), default=0)
        flags = NewRunFlags(config=rng.choice(CONFIGS)().pinned())
        more = [word for word in more_words(rng, flags, rng.randint(0, 2)) if "preset" not in word]
        yield ["resume", str(folder), f"--total-env-steps={round(reached * 1.5)}", *more]
    if rng.random() < 0.3:
        yield ["evaluate", str(folder), "--evaluation.num-envs=2"]
    if rng.random() < 0.2:
        yield ["advise", str(folder)]
    if rng.random() < 0.2:
        yield ["report", str(folder)]


def counted_twice(folder: Path) -> str | None:
    steps = [row["env_steps"] for row in log.read(folder)]
    return "env steps are counted twice" if any(b <= a for a, b in pairwise(steps)) else None
