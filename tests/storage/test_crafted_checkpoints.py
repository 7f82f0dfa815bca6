"""Checkpoints with right checksums and wrong contents end in a sentence or in a run, never in a traceback."""

import hashlib
import json
import random
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from phase_runs import phase_config
from safetensors.torch import load_file, save_file
from torch import Tensor
from toy_runs import changed, newest_state, toy_config, toy_pqn_config, train

from anybatch import evaluating, training
from anybatch.algorithms import ppg
from anybatch.config import AnyConfig
from anybatch.errors import UserError
from anybatch.runs.display import QUIET
from anybatch.runs.record import RunRecord

Harm = Callable[[Path], None]
"""What is done to the run folder at a path."""

TENSORS, STATE, CHECKSUMS = "tensors.safetensors", "state.json", "checksums.json"
SAMPLE = 40
"""Corruptions of each run that are tried every time; the slow test tries all."""


class Case(NamedTuple):
    """A corruption, and what it is called when it ends badly."""

    name: str
    harm: Harm


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


VALUES = {
    "null": "null",
    "text": '"text"',
    "true": "true",
    "minus one": "-1",
    "a fraction": "1.5",
    "not a number": '{"$float": "nan"}',
    "infinity": '{"$float": "inf"}',
    "no float": '{"$float": "text"}',
    "a huge number": "1" + "0" * 400,
    "an empty list": "[]",
    "an empty table": "{}",
    "a list of texts": '["text", null]',
    "an unknown table": '{"text": null}',
    "no tensor": '{"$tensor": "nowhere"}',
    "an unknown kind": '{"$nothing": 1}',
    "nested a bit": nested(30),
    "nested deeply": nested(300),
    "nested very deeply": nested(200_000),
}
TENSOR_HARMS: dict[str, Callable[[Tensor], Tensor]] = {
    "one row more": lambda tensor: torch.cat([tensor, tensor[:1]]) if tensor.ndim else torch.zeros(2),
    "one dimension more": lambda tensor: tensor[None].contiguous(),
    "nothing": lambda tensor: torch.zeros(0, dtype=tensor.dtype),
    "in half precision": lambda tensor: tensor.to(torch.float16),
    "in double precision": lambda tensor: tensor.to(torch.float64),
    "as whole numbers": lambda tensor: tensor.to(torch.int64),
    "not a number": lambda tensor: (
        torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else ~tensor
    ),
    "infinite": lambda tensor: tensor / 0 if tensor.is_floating_point() else tensor[..., None].contiguous(),
}


def stopped_ppo(base: Path) -> tuple[Path, AnyConfig]:
    """PPO-EWMA with data that waits, and all that is normalized."""
    config = toy_config(
        proximal={"policy": "ewma"},
        staleness={"iterations": 2},
        normalize={"observations": "step", "rewards": "iteration"},
        update={"noise_scale_every": 1},
    )
    return train(config, base).folder, config


def stopped_ppg(base: Path) -> tuple[Path, AnyConfig]:
    """PPG within an auxiliary phase."""
    config = phase_config(env="toy:Target", total_env_steps=200, phase={"value_epochs": 2})
    original, calls = ppg.auxiliary_step, []

    def stop_at_third(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ppg, "auxiliary_step", stop_at_third)
        folder = train(config, base).folder
    assert newest_state(folder)["shared"]["phase"]["progress"] is not None
    return folder, config


def stopped_pqn(base: Path) -> tuple[Path, AnyConfig]:
    """PQN with a controller that has measured."""
    config = toy_pqn_config(
        controller={"kind": "divergence", "min_steps": 4, "max_steps": 16, "start_steps": 7, "every": 1}
    )
    return train(config, base).folder, config


RUNS = {"ppo": stopped_ppo, "ppg": stopped_ppg, "pqn": stopped_pqn}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, AnyConfig]]:
    """Each with its newest checkpoint only: there is none before it to go back to."""
    made = {name: make(tmp_path_factory.mktemp(name)) for name, make in RUNS.items()}
    for folder, _ in made.values():
        for path in set((folder / "checkpoints").iterdir()) - {newest(folder)}:
            shutil.rmtree(path)
    return made


def newest(folder: Path) -> Path:
    return max((folder / "checkpoints").glob("step_*"))


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def seal(checkpoint: Path) -> None:
    """Make the checksums right again."""
    (checkpoint / CHECKSUMS).write_text(
        json.dumps({name: checksum(checkpoint / name) for name in (TENSORS, STATE)})
    )


def paths_in(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from paths_in(value, (*path, key))


def change_state(path: tuple[Any, ...], value: str | None) -> Harm:
    """Put another JSON text at a place of state.json; None drops what is there."""

    def harm(folder: Path) -> None:
        checkpoint = newest(folder)
        content = json.loads((checkpoint / STATE).read_text())
        *parents, last = path
        node = content
        for key in parents:
            node = node[key]
        if value is None:
            del node[last]
        else:
            node[last] = "PLACE"
        (checkpoint / STATE).write_text(json.dumps(content).replace('"PLACE"', value or ""))
        seal(checkpoint)

    return harm


def change_tensor(name: str, change: Callable[[Tensor], Tensor] | None) -> Harm:
    def harm(folder: Path) -> None:
        checkpoint = newest(folder)
        replace_tensor(checkpoint / TENSORS, name, change)
        seal(checkpoint)

    return harm


def change_segment(segment: str, name: str, change: Callable[[Tensor], Tensor] | None) -> Harm:
    def harm(folder: Path) -> None:
        checkpoint, path = newest(folder), folder / "segments" / f"{segment}.safetensors"
        replace_tensor(path, name, change)
        content = json.loads((checkpoint / STATE).read_text())
        content["segments"][segment] = checksum(path)
        (checkpoint / STATE).write_text(json.dumps(content))
        seal(checkpoint)

    return harm


def replace_tensor(path: Path, name: str, change: Callable[[Tensor], Tensor] | None) -> None:
    tensors = load_file(path)
    tensor = tensors.pop(name)
    if change is not None:
        tensors[name] = change(tensor)
    save_file(tensors, path)


def cases(folder: Path) -> list[Case]:
    checkpoint = newest(folder)
    found: list[Case] = []
    for path in paths_in(json.loads((checkpoint / STATE).read_text())):
        place = "/".join(map(str, path))
        found.append(Case(f"{place} dropped", change_state(path, None)))
        found += [Case(f"{place}: {name}", change_state(path, value)) for name, value in VALUES.items()]
    harms = {"dropped": None} | TENSOR_HARMS
    for tensor in load_file(checkpoint / TENSORS):
        found += [Case(f"{tensor}: {name}", change_tensor(tensor, harm)) for name, harm in harms.items()]
    for path in sorted((folder / "segments").glob("*.safetensors")):
        for tensor in load_file(path):
            found += [
                Case(f"{path.stem}, {tensor}: {name}", change_segment(path.stem, tensor, harm))
                for name, harm in harms.items()
            ]
    return found


def tracebacks(folder: Path, config: AnyConfig, tried: list[Case], tmp_path: Path) -> list[str]:
    """The corruptions that end in anything but a sentence or a run."""
    longer = changed(config, total_env_steps=config.total_env_steps + 40)
    bad: list[str] = []
    for number, case in enumerate(tried):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        case.harm(copy)
        for use, settings in ((evaluate, config), (proceed, longer)):
            try:
                use(RunRecord(copy), settings)
            except UserError as error:
                assert "\n" not in str(error) and len(str(error)) < 1000, case.name
            except Exception as error:
                bad.append(f"{case.name}: {type(error).__name__}: {str(error)[:200]}")
        shutil.rmtree(copy)
    return bad


@pytest.mark.parametrize("name", RUNS)
def test_what_was_not_harmed_is_used(name: str, runs: dict[str, tuple[Path, AnyConfig]], tmp_path: Path):
    folder, config = runs[name]
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    seal(newest(copy))
    evaluate(RunRecord(copy), config)
    env_steps = int(newest(copy).name.removeprefix("step_"))
    proceed(RunRecord(copy), changed(config, total_env_steps=env_steps + 40))
    assert int(newest(copy).name.removeprefix("step_")) >= env_steps + 40


def evaluate(record: RunRecord, config: AnyConfig) -> None:
    evaluating.evaluate_run(record, config, output=QUIET)


def proceed(record: RunRecord, config: AnyConfig) -> None:
    training.resume(record, config, output=QUIET)


@pytest.mark.parametrize("name", RUNS)
def test_a_sample_of_all_corruptions_ends_in_sentences(
    name: str, runs: dict[str, tuple[Path, AnyConfig]], tmp_path: Path
):
    folder, config = runs[name]
    tried = random.Random(11).sample(cases(folder), SAMPLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of arithmetic with what was put in
        assert not tracebacks(folder, config, tried, tmp_path)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(
    value: float, name: str, runs: dict[str, tuple[Path, AnyConfig]], tmp_path: Path
):
    folder, config = runs[name]
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    tensor = next(
        key for key in load_file(newest(copy) / TENSORS) if key.startswith("shared/learner/network/")
    )
    change_tensor(tensor, lambda weights: torch.full_like(weights, value))(copy)
    for use in (evaluate, proceed):
        with pytest.raises(UserError, match=r"step_\d+ cannot be used: .* has non-finite values"):
            use(RunRecord(copy), changed(config, total_env_steps=999))


def test_a_state_of_other_env_steps_than_its_checkpoint_is_refused(
    runs: dict[str, tuple[Path, AnyConfig]], tmp_path: Path
):
    folder, config = runs["pqn"]
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    change_state(("state", "shared", "learner", "env_steps"), "7")(copy)
    with pytest.raises(UserError, match="its state is of 7 env steps"):
        proceed(RunRecord(copy), changed(config, total_env_steps=999))


@pytest.mark.parametrize(
    "content", [nested(200_000), nested(300), "[]", "3", '{"algorithm": []}', '{"earlier": 3}']
)
@pytest.mark.parametrize("file", ["config.json", "result.json", "facts.json", "plan.json"])
def test_records_that_are_something_else_end_in_sentences(
    file: str, content: str, runs: dict[str, tuple[Path, AnyConfig]], tmp_path: Path
):
    folder, config = runs["pqn"]
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / file).write_text(content)
    for use in (evaluate, proceed):
        try:
            use(RunRecord(copy), config)
        except UserError as error:
            assert "\n" not in str(error)
            assert str(copy) in str(error) or "this run has done" in str(error)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", RUNS)
def test_every_corruption_ends_in_a_sentence(
    name: str, runs: dict[str, tuple[Path, AnyConfig]], tmp_path: Path
):
    folder, config = runs[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not tracebacks(folder, config, cases(folder), tmp_path)
