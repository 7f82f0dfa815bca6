"""The commands that take a policy elsewhere: export, push and pull."""

import sys
from dataclasses import dataclass
from pathlib import Path

from anybatch.cli.commands import RunFlags, with_run
from anybatch.errors import UserError
from anybatch.export import onnx_file
from anybatch.runs.display import Output
from anybatch.runs.record import NEWEST, RunRecord


@dataclass(frozen=True, kw_only=True)
class ExportFlags(RunFlags):
    onnx: Path | None = None
    """Write the policy as this ONNX file, with its observation normalizer: greedy actions and what sampling
    needs, for any number of observations at once (needs the extra `onnx`)."""
    checkpoint: str = NEWEST
    """newest, best (of the evaluations during training, see --evaluation.every-env-steps), or the env steps
    of one."""


def export(words: list[str]) -> None:
    """Write the policy of a run for use outside of anybatch."""
    flags = with_run(ExportFlags, words, export)
    if flags.onnx is None:
        raise UserError("say what to write: --onnx agent.onnx")
    output = Output(shown=True, stream=sys.stderr)
    record = RunRecord(flags.run)
    written = onnx_file.export_run(
        record, flags.config, flags.onnx, output=output, checkpoint=flags.checkpoint
    )
    print(written.sentence())
