"""A policy as a folder for the Hugging Face Hub. It is also a run folder: evaluate, watch and load accept
it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anybatch import evaluating, planning
from anybatch.config import AnyConfig
from anybatch.config.serialization import config_to_dict
from anybatch.dial import plan_table
from anybatch.errors import DiskError, UserError, cause_of
from anybatch.export import onnx_file, video
from anybatch.export.model_card import Card
from anybatch.runs import folder as run_folder
from anybatch.runs.display import Output
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.storage import safe_files
from anybatch.storage.checkpoint import PLACE, Checkpoints
from anybatch.text import counted
from anybatch.training import naming_flags

CARD, EVALUATION, VIDEO, ONNX = "README.md", "evaluation.json", "replay.mp4", "policy.onnx"
CONTENT = (
    CARD,
    run_folder.CONFIG_FILE,
    run_folder.PLAN_FILE,
    EVALUATION,
    VIDEO,
    ONNX,
    f"{PLACE}/*/*.safetensors",
    f"{PLACE}/*/*.json",
)
"""Patterns of all files that a folder can hold. No pickle, no code."""
VIDEO_STEPS, VIDEO_FRAMES_PER_SECOND = 500, 30


@dataclass(frozen=True)
class HubFolder:
    """A folder that was written."""

    path: Path
    card: Card

    def sentence(self) -> str:
        mean, deviation = self.card.mean_and_deviation
        files = sum(1 for path in self.path.rglob("*") if path.is_file())
        return (
            f"{self.path}: {files} files, {self.card.config.title} on {self.card.config.env} after "
            f"{self.card.env_steps:,} env steps, mean return {mean:.6g} ± {deviation:.3g} "
            f"(standard deviation) over {counted(len(self.card.evaluation.episodes), 'episode')}"
        )


def is_hub_folder(path: Path) -> bool:
    return (path / CARD).is_file() and (path / run_folder.CONFIG_FILE).is_file()


def write(
    record: RunRecord,
    config: AnyConfig,
    folder: Path,
    *,
    output: Output,
    checkpoint: str = NEWEST,
    with_video: bool = True,
    with_onnx: bool = False,
    repository: str | None = None,
) -> HubFolder:
    """Evaluate a checkpoint of a run and write everything for its page on the Hub to a new folder.

    `config` says how it is evaluated; the rest of the page is about the run as it was trained.
    """
    trained = replace(record.config, evaluation=config.evaluation)
    with new_folder(folder) as aside:
        loaded = record.load_checkpoint(checkpoint, with_segments=False)
        Checkpoints(aside, keep=1).write(loaded.env_steps, {"shared": inference_state(loaded.tree)})
        plan = planning.plan(trained)
        run_folder.write_json(
            aside / run_folder.CONFIG_FILE, {"algorithm": trained.algorithm} | config_to_dict(trained)
        )
        run_folder.write_json(
            aside / run_folder.PLAN_FILE, plan.to_json() | plan_table(trained, plan).to_json()
        )
        evaluation = evaluating.evaluate_run(record, config, output=output, checkpoint=checkpoint).evaluation
        run_folder.write_json(aside / EVALUATION, evaluation.to_json())
        if with_onnx:
            onnx_file.export_run(record, config, aside / ONNX, checkpoint=checkpoint, output=output)
        if with_video:
            try:
                options: Any = {"steps": VIDEO_STEPS, "frames_per_second": VIDEO_FRAMES_PER_SECOND}
                video.watch(record, config, aside / VIDEO, **options, checkpoint=checkpoint, output=output)
            except UserError as error:
                raise UserError(f"{error}; --no-video leaves the video out") from error
        card = Card(
            config=trained,
            plan=plan,
            evaluation=evaluation,
            evaluation_seed=config.seed,
            other_settings=other_env_settings(trained, config),
            scales_actions=scales_actions(trained, loaded.tree),
            env_steps=loaded.env_steps,
            checkpoint=checkpoint,
            repository=repository,
            video=VIDEO if with_video else None,
            onnx=ONNX if with_onnx else None,
            versions=versions(record),
            naming=naming_flags(config),
        )
        safe_files.replace(aside / CARD, card.text().encode(errors="replace"))
    return HubFolder(folder, card)


def other_env_settings(trained: AnyConfig, evaluated: AnyConfig) -> str:
    """The settings of the environment in which the evaluation differs from the training."""
    before = config_to_dict(trained.env_config)
    now = config_to_dict(evaluated.env_config)
    changed = [f"{name} = {value}" for name, value in now.items() if value != before[name]]
    return ", ".join([*([f"env = {evaluated.env}"] if evaluated.env != trained.env else []), *changed])


def scales_actions(config: AnyConfig, tree: dict[str, Any]) -> bool:
    """Whether a policy's actions are mapped to bounds: only one with continuous actions has deviations."""
    return config.env_config.actions == "scaled" and any(
        name.endswith("log_std") for name in inference_state(tree)["learner"]["network"] or {}
    )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A new folder that gets its name when it is complete. An existing folder is not changed."""
    if folder.exists():
        raise UserError(f"{folder} exists already: name a new folder")
    try:
        with safe_files.written_aside(folder) as aside:
            aside.mkdir()
            yield aside
    except OSError as error:
        raise DiskError(f"{folder} could not be written: {cause_of(error)}") from error


def inference_state(tree: dict[str, Any]) -> dict[str, Any]:
    """The parts of a checkpoint needed for acting: the network and its view of observations."""
    shared = tree.get("shared") or {}
    learner = shared.get("learner") or {}
    return {
        "learner": {"network": learner.get("network")},
        "observation_normalizer": shared.get("observation_normalizer"),
    }


def versions(record: RunRecord) -> dict[str, str]:
    """The versions that trained the policy; nothing else in the record leaves the machine."""
    path = record.folder / run_folder.FACTS_FILE
    facts = run_folder.read_json(path) if path.exists() else {}
    named = {name: facts.get(name) for name in ("anybatch", "torch", "engine")}
    known = {name: str(value) for name, value in named.items() if value}
    engine, _, version = known.pop("engine", "").partition(" ")
    return known | ({engine: version} if engine and version else {})
