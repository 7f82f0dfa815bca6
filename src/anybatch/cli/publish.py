"""The commands that move policies: export, push and pull."""

import shlex
import sys
import tempfile
from pathlib import Path

from anybatch.cli.flags import ExportFlags, PullFlags, PushFlags
from anybatch.cli.parser import Argv, parse
from anybatch.cli.run_flags import with_run
from anybatch.errors import UserError
from anybatch.export import hub, hub_folder, onnx_file
from anybatch.runs.display import Output
from anybatch.runs.record import RunRecord


def export(words: list[str]) -> None:
    flags = with_run(ExportFlags, Argv(words))
    if flags.onnx is None and flags.hub is None:
        raise UserError("choose what to write: --onnx agent.onnx, --hub FOLDER or both")
    record = RunRecord(flags.run)
    with to_person() as output:
        if flags.onnx is not None:
            exported = onnx_file.export_run(
                record, flags.config, flags.onnx, checkpoint=flags.checkpoint, output=output
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
    flags = with_run(PushFlags, Argv(words))
    if not flags.repository:
        raise UserError("name the repository after the run: anybatch push RUN USER/NAME")
    hub.validate_repository(flags.repository, update=flags.update)  # before an evaluation that may take long
    if hub_folder.is_hub_folder(flags.run):
        upload(flags, flags.run)  # unchanged: its card may have been edited
        return
    with tempfile.TemporaryDirectory() as place, to_person() as output:
        written = hub_folder.write(
            RunRecord(flags.run),
            flags.config,
            Path(place) / "policy",
            output=output,
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
    flags = parse(PullFlags(), Argv(words))
    out = flags.out or Path("runs") / flags.repository.rpartition("/")[2]
    record = hub.pull(flags.repository, out, revision=flags.revision)
    print(f"{record.folder}: {record.config.algorithm.upper()} on {record.config.env}")
    commands = (shlex.join(["anybatch", name, str(record.folder)]) for name in ("evaluate", "watch"))
    print("next:", *commands, sep="\n  ")


def to_person() -> Output:
    """Progress on standard error: standard output is for the result."""
    return Output(shown=True, stream=sys.stderr)
