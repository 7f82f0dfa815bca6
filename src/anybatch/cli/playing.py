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
from anybatch.errors import UserError
from anybatch.export import video
from anybatch.lab import suites as suite
from anybatch.runs import folder as run_folder
from anybatch.runs.display import Output
from anybatch.runs.record import RunRecord
from anybatch.text import number_text


def evaluate(words: list[str]) -> None:
    argv = Argv(words)
    name = argv.value("suite")
    if name is not None:
        evaluate_suite(name, argv)
        return
    flags = with_run(EvaluateFlags, argv)
    played = play(flags)
    print(json.dumps(played.to_json(), indent=2) if flags.json else played.text())


def evaluate_suite(name: str, argv: Argv) -> None:
    """Evaluate each of the named runs as `evaluate` does, then summarize them."""
    suite.validate_suite(name)
    others = Argv(argv.without("suite"))
    if not others.leading:
        raise UserError("name the run folders before the other flags, such as runs/ for all runs in it")
    folders = dict.fromkeys(run for path in others.leading for run in run_folder.find_runs(Path(path)))
    options = others.words[len(others.leading) :]
    for folder in [folder for folder in folders if not RunRecord(folder).has_checkpoint]:
        print(f"{folder} has no checkpoint yet and is left out", file=sys.stderr)
        del folders[folder]
    if not folders:
        raise UserError("none of the named runs has a checkpoint to evaluate")
    runs = [with_run(EvaluateFlags, Argv([str(folder), *options])) for folder in folders]
    wanted = [flags for flags in runs if suite.contains(name, flags.config.env)]
    left_out = sorted({flags.config.env for flags in runs} - {flags.config.env for flags in wanted})
    if not wanted:
        raise UserError(f"none of the named runs is on a game of {name}: {', '.join(left_out)}")
    played: list[suite.PlayedRun] = []
    for flags in wanted:
        played.append(play(flags))
        if not flags.json:
            print(played[-1].text())  # immediately: the others may take hours
    result = suite.summarize(name, played, left_out)
    if wanted[0].json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        show_suite(result)


def show_suite(result: suite.SuiteResult) -> None:
    """Print the table *game · runs · score · human-normalized · capped*, then the summary over the games."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for header in ("game", "runs", "score", "human-normalized", "capped"):
        table.add_column(header, justify="left" if header == "game" else "right")
    for game in result.games:
        score, percent, capped = (
            number_text(game.score, 6),
            f"{number_text(game.percent, 4)}%",
            f"{100 * game.capped_share:.3g}%",
        )
        table.add_row(game.game, str(len(game.runs)), score, percent, capped)
    console = Console(highlight=False)
    console.print()
    console.print(table)
    for sentence in result.sentences():
        console.print(sentence, markup=False, soft_wrap=True)


def play(flags: EvaluateFlags) -> suite.PlayedRun:
    with Output(shown=True, stream=sys.stderr) as output:  # stdout is for the result
        result, env_steps = evaluating.evaluate_run(
            RunRecord(flags.run), flags.config, output=output, checkpoint=flags.checkpoint
        )
    return suite.PlayedRun(str(flags.run), flags.config.env, env_steps, result)


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
