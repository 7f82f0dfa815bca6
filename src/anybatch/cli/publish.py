"""The commands that move policies: export, push and pull."""

import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro

from anybatch.cli.commands import CheckpointFlags, with_run
from anybatch.cli.flag_values import FLAG_VALUES
from anybatch.cli.help_page import HELP_FLAGS
from anybatch.cli.offered import PLAYING, Offered
from anybatch.cli.usage_error import as_user_error
from anybatch.errors import UserError
from anybatch.export import hub, hub_folder, onnx_file
from anybatch.runs.display import Output
from anybatch.runs.record import RunRecord


@dataclass(frozen=True, kw_only=True)
class ExportFlags(CheckpointFlags):
    offered: ClassVar[Offered] = PLAYING
    onnx: Path | None = None
    """Write the policy with its observation normalizer as this ONNX file. It outputs greedy actions and what
    sampling needs, for any number of observations at once (needs the extra `onnx`)."""
    hub: Path | None = None
    """Write a new folder for the Hugging Face Hub: model card with an evaluation, weights, config, video.
    With --onnx, the folder also holds an ONNX file."""
    video: bool = True
    """Include a video of the agent in that folder (needs the extra `video`)."""


@dataclass(frozen=True, kw_only=True)
class PushFlags(CheckpointFlags):
    offered: ClassVar[Offered] = PLAYING
    repository: tyro.conf.Positional[str] = ""
    """Name on the Hub, USER/NAME."""
    private: bool = False
    """Make the repository visible only to you."""
    update: bool = False
    """Upload into an existing repository, replacing the files of an earlier version."""
    onnx: bool = False
    """Also publish the policy as an ONNX file (needs the extra `onnx`)."""
    video: bool = True
    """Publish a video of the agent (needs the extra `video`)."""


@dataclass(frozen=True, kw_only=True)
class PullFlags:
    repository: tyro.conf.Positional[str] = ""
    """Name on the Hub, USER/NAME."""
    out: Path | None = None
    """The folder to write, which must not exist. By default runs/NAME."""
    revision: str | None = None
    """Branch, tag or commit; by default the newest."""


def export(words: list[str]) -> None:
    """Write the policy of a run for use outside anybatch."""
    flags = with_run(ExportFlags, words, export)
    if flags.onnx is None and flags.hub is None:
        raise UserError("choose what to write: --onnx agent.onnx, --hub FOLDER or both")
    output, record = to_person(), RunRecord(flags.run)
    if flags.onnx is not None:
        exported = onnx_file.export_run(
            record, flags.config, flags.onnx, output=output, checkpoint=flags.checkpoint
        )
        print(exported.sentence())
    if flags.hub is not None:
        written = hub_folder.write(
            record,
            flags.config,
            flags.hub,
            output=output,
            checkpoint=flags.checkpoint,
            with_video=flags.video,
            with_onnx=flags.onnx is not None,
        )
        print(written.sentence())


def push(words: list[str]) -> None:
    """Publish a run's policy, or a folder of export --hub, on the Hugging Face Hub."""
    flags = with_run(PushFlags, words, push)
    if not flags.repository:
        raise UserError("name the repository after the run: anybatch push RUN USER/NAME")
    hub.refuse_taken(flags.repository, update=flags.update)  # before an evaluation that may take long
    if hub_folder.is_hub_folder(flags.run):
        upload(flags, flags.run)  # unchanged: its card may have been edited
        return
    with tempfile.TemporaryDirectory() as place:
        written = hub_folder.write(
            RunRecord(flags.run),
            flags.config,
            Path(place) / "policy",
            output=to_person(),
            checkpoint=flags.checkpoint,
            with_video=flags.video,
            with_onnx=flags.onnx,
            repository=flags.repository,
        )
        upload(flags, written.path)


def upload(flags: PushFlags, folder: Path) -> None:
    address = hub.push(
        folder,
        flags.repository,
        private=flags.private,
        update=flags.update,
        message=f"Policy of {flags.config.algorithm.upper()} on {flags.config.env}",
    )
    print(f"published   {address}\nfor others  anybatch pull {flags.repository}")


def pull(words: list[str]) -> None:
    """Download a policy from the Hugging Face Hub, to evaluate, watch or export it."""
    if HELP_FLAGS & set(words):
        with FLAG_VALUES:
            tyro.cli(PullFlags, args=["--help"], prog="anybatch pull", description=pull.__doc__)
    with as_user_error(), FLAG_VALUES:
        flags = tyro.cli(PullFlags, args=words)
    if not flags.repository:
        raise UserError("name the repository: anybatch pull USER/NAME")
    out = flags.out or Path("runs") / flags.repository.rpartition("/")[2]
    record = hub.pull(flags.repository, out, revision=flags.revision)
    print(f"{record.folder}: {record.config.algorithm.upper()} on {record.config.env}")
    commands = (shlex.join(["anybatch", name, str(record.folder)]) for name in ("evaluate", "watch"))
    print("next:", *commands, sep="\n  ")


def to_person() -> Output:
    """Progress on standard error: standard output is for the result."""
    return Output(shown=True, stream=sys.stderr)
