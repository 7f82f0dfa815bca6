"""`anybatch evaluate --suite`: many runs as one result."""

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from anybatch.cli.flags import EvaluateFlags
from anybatch.cli.parser import Argv
from anybatch.cli.playing import play
from anybatch.cli.run_flags import with_run
from anybatch.errors import UserError
from anybatch.evaluating import PlayedRun
from anybatch.lab import suites
from anybatch.runs import folder as run_folder
from anybatch.runs.record import RunRecord
from anybatch.text import number_text


def evaluate_suite(argv: Argv) -> None:
    """Evaluate each of the named runs as `evaluate` does, then summarize them."""
    name = argv.value("suite") or ""
    suites.validate_suite(name)
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
    wanted = [flags for flags in runs if suites.contains(name, flags.config.env)]
    left_out = sorted({flags.config.env for flags in runs} - {flags.config.env for flags in wanted})
    if not wanted:
        raise UserError(f"none of the named runs is on a game of {name}: {', '.join(left_out)}")
    played: list[PlayedRun] = []
    for flags in wanted:
        played.append(play(flags))
        if not flags.json:
            print(played[-1].text())  # immediately: the others may take hours
    result = suites.summarize(name, played, left_out)
    if wanted[0].json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        show_suite(result)


def show_suite(result: suites.SuiteResult) -> None:
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
