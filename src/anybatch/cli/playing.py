"""`anybatch evaluate`, `watch` and `advise`: what a trained policy does, and what its metrics say."""

import json
import sys
from pathlib import Path

from anybatch import api, evaluating
from anybatch.cli import show
from anybatch.cli.flags import AdviseFlags, EvaluateFlags, WatchFlags
from anybatch.cli.parser import Argv, parse
from anybatch.cli.run_flags import with_run
from anybatch.errors import UserError
from anybatch.export import video
from anybatch.lab import suites as suite
from anybatch.runs import folder as run_folder
from anybatch.runs.display import Output
from anybatch.runs.record import RunRecord


def evaluate(words: list[str]) -> None:
    """Evaluate a checkpoint of a run, or of all runs on a suite of games."""
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
    suite.refuse_unknown(name)
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
        show.suite(result)


def play(flags: EvaluateFlags) -> suite.PlayedRun:
    with Output(shown=True, stream=sys.stderr) as output:  # stdout is for the result
        result, env_steps = evaluating.evaluate_run(
            RunRecord(flags.run), flags.config, output=output, checkpoint=flags.checkpoint
        )
    return suite.PlayedRun(str(flags.run), flags.config.env, env_steps, result)


def watch(words: list[str]) -> None:
    """Make a video of an agent, from a checkpoint of its run."""
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
    """Say what a run's metrics suggest about its settings."""
    show_advice(parse(AdviseFlags(), Argv(words)).run)


def show_advice(folder: Path) -> None:
    run = api.TrainedRun(folder)
    if run.env_steps == 0:
        print(f"\nadvice: {run.folder.name} has no metrics yet")
        return
    show.advice(run.folder, run.advice())
