"""`anybatch evaluate`, `watch`, `advise` and `check-env`: what policies, metrics and environments show."""

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anybatch import api, evaluating
from anybatch.cli.flags import AdviseFlags, CheckEnvFlags, EvaluateFlags, WatchFlags
from anybatch.cli.parser import Argv, parse
from anybatch.cli.run_flags import with_run
from anybatch.evaluating import PlayedRun
from anybatch.export import video
from anybatch.runs.display import Output
from anybatch.runs.record import RunRecord


def evaluate(words: list[str]) -> None:
    argv = Argv(words)
    if argv.value("suite") is not None:
        from anybatch.cli import suite

        suite.evaluate_suite(argv)
        return
    flags = with_run(EvaluateFlags, argv)
    played = play(flags)
    print(json.dumps(played.to_json(), indent=2) if flags.json else played.text())


def play(flags: EvaluateFlags) -> PlayedRun:
    with Output(shown=True, stream=sys.stderr) as output:  # stdout is for the result
        return evaluating.evaluate_run(
            RunRecord(flags.run), flags.config, output=output, checkpoint=flags.checkpoint
        )


def watch(words: list[str]) -> None:
    flags = with_run(WatchFlags, Argv(words))
    with Output(shown=True, stream=sys.stderr) as output:
        played = video.watch(
            RunRecord(flags.run),
            flags.config,
            flags.out,
            steps=flags.steps,
            frames_per_second=flags.frames_per_second,
            checkpoint=flags.checkpoint,
            output=output,
        )
    print(played.sentence())


def advise(words: list[str]) -> None:
    show_advice(parse(AdviseFlags(), Argv(words)).run)


def show_advice(folder: Path) -> None:
    """Print what stands out in a run, one paragraph each."""
    run, console = api.TrainedRun(folder), Console(highlight=False)
    if run.env_steps == 0:
        print(f"\nadvice: {run.folder.name} has no metrics yet")
        return
    findings = run.advice()
    if not findings:
        console.print(f"\nadvice: nothing stands out in the metrics of {run.folder.name}", markup=False)
        return
    console.print(f"\nadvice, from the metrics of {run.folder.name}:", markup=False, soft_wrap=True)
    for finding in findings:
        said = Text(finding.measured, style="bold") + Text(f": {finding.meaning}.", style="not bold")
        table = Table.grid()
        table.add_row("· ", said)
        table.add_row("", Text(finding.flag, style="dim"))
        console.print(table)


def check_env(words: list[str]) -> None:
    flags = parse(CheckEnvFlags(), Argv(words))
    for finding in api.check_env(flags.env, flags.env_config) or ["nothing stands out"]:
        print(finding)
