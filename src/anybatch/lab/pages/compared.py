"""Comparison of runs, named by what differs. Runs that differ only in their seeds share one line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anybatch.config import AnyConfig
from anybatch.config.serialization import config_to_dict
from anybatch.errors import UserError
from anybatch.lab.charts import palette
from anybatch.runs.folder import NAME_SEPARATOR
from anybatch.runs.record import RunRecord
from anybatch.runs.tag import GROUPS_NOT_NAMED, NOT_NAMED, flat

MOST_DIFFERENCES = 3
"""Most settings in a label; runs that differ in more are named by their folders."""
NOT_COMPARED = NOT_NAMED - {"env", "total_env_steps"}
"""Settings that curves do not depend on, and the seed, whose runs are averaged."""


@dataclass(frozen=True)
class RunView:
    """The content of a run folder, read once."""

    folder: Path
    config: AnyConfig
    rows: Sequence[Mapping[str, Any]]
    plan: dict[str, Any]
    result: Mapping[str, Any]
    """Empty until the run has ended."""
    facts: Mapping[str, Any]

    @property
    def env_steps(self) -> int:
        return int(self.rows[-1]["env_steps"]) if self.rows else 0


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds."""

    name: str
    """The settings in which it differs from the other groups, or its environment and preset."""
    color: str
    dashed: bool
    runs: tuple[RunView, ...]

    @property
    def label(self) -> str:
        return f"{self.name} ({len(self.runs)} runs)" if len(self.runs) > 1 else self.name

    @property
    def config(self) -> AnyConfig:
        return self.runs[0].config


def read(path: Path) -> RunView:
    """The run at `path`, or the newest one in it."""
    record = RunRecord(path)
    return RunView(record.folder, record.config, record.rows, record.plan, record.result or {}, record.facts)


def read_all(paths: Iterable[Path]) -> list[RunView]:
    """All named runs, each once. At least one must have metrics."""
    folders = dict.fromkeys(RunRecord(path).folder.resolve() for path in paths)
    if not folders:
        raise UserError("name at least one run folder, such as runs/ for the newest run in that folder")
    runs = [read(folder) for folder in folders]
    if not any(run.rows for run in runs):
        raise UserError(f"{', '.join(run.folder.name for run in runs)}: there are no metrics yet")
    return runs


def grouped(runs: Sequence[RunView]) -> list[Group]:
    """One group per set of settings, in the order in which they were named."""
    members: dict[str, list[RunView]] = {}
    for run in runs:
        members.setdefault(repr(sorted(compared_settings(run.config).items())), []).append(run)
    groups = list(members.values())
    return [
        Group(name, *palette.distinct(number), tuple(group))
        for number, (name, group) in enumerate(zip(group_names(groups), groups, strict=True))
    ]


def compared_settings(config: AnyConfig) -> dict[str, Any]:
    """All settings that curves depend on, by their whole names."""
    settings = {"algorithm": config.algorithm} | flat(config_to_dict(config))
    return {
        path: value
        for path, value in settings.items()
        if path not in NOT_COMPARED and not path.startswith(GROUPS_NOT_NAMED)
    }


def group_names(groups: Sequence[Sequence[RunView]]) -> list[str]:
    """What distinguishes each group: the settings that are not the same in all, or what runs are called."""
    settings = [compared_settings(group[0].config) for group in groups]
    paths = dict.fromkeys(path for one in settings for path in one)
    differing = [path for path in paths if any(one.get(path) != settings[0].get(path) for one in settings)]
    if len(groups) == 1 or len(differing) > MOST_DIFFERENCES:
        shared = [shared_name(group) for group in groups]
        return shared if len(set(shared)) == len(shared) else [listed_names(group) for group in groups]
    return [
        ", ".join(f"{shown_name(path)} {shown_value(values.get(path))}" for path in differing)
        for values in settings
    ]


def shared_name(group: Sequence[RunView]) -> str:
    """The environment, and what the names of the runs' folders share: the preset and what differs from it.

    A folder that was named by a person counts as a whole.
    """
    parts = [run.folder.name.split(NAME_SEPARATOR)[1:-2] for run in group]  # without env, seed and time
    common = [part for part in parts[0] if all(part in others for others in parts)]
    return ", ".join([group[0].config.env, *(common or [listed_names(group)])])


def listed_names(group: Sequence[RunView]) -> str:
    """The names of the runs' folders, of more than two the first two."""
    return ", ".join([run.folder.name for run in group[:2]] + (["…"] if len(group) > 2 else []))


def shown_name(setting: str) -> str:
    """The flag of a setting, with its group only if needed: tuned-at.num-envs, learning-rate."""
    name = setting if setting.startswith("tuned_at.") else setting.rpartition(".")[2]
    return name.replace("_", "-")


def shown_value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {None: "none", True: "on", False: "off"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
