"""`anybatch train` and `anybatch resume`."""

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from anybatch import planning, presets, training
from anybatch.cli import ranks
from anybatch.cli.flags import ResumeFlags, TrainFlags
from anybatch.cli.parser import Argv
from anybatch.cli.playing import show_advice
from anybatch.cli.run_flags import named_settings, with_preset, with_run
from anybatch.distributed import collectives, group
from anybatch.runs import lost_output
from anybatch.runs.display import Output
from anybatch.runs.plan_text import wrapped
from anybatch.runs.record import RunRecord
from anybatch.runs.tag import tag_of
from anybatch.text import counted, number_text
from anybatch.training import Outcome

BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 40


def train(words: list[str]) -> None:
    argv = Argv(words)
    number = ranks.asked_for(argv)
    if number > 1:
        with_preset(TrainFlags, argv).config.on_ranks(number)  # refuse before starting ranks
        ranks.launch("train", argv, number)
    with ranks.as_a_rank():
        with Output(shown=True) as output:
            with group.failing_together():
                flags = with_preset(TrainFlags, argv)
                tag = tag_of(flags.config, presets.load(flags.preset).config)
            outcome = training.train(
                flags.config,
                preset=Path(flags.preset).stem,
                base=flags.run_dir,
                name=flags.name,
                tag=tag,
                output=output,
            )
        show(outcome, smaller=smaller_batch(flags, argv))
        show_advice(outcome.folder)


def resume(words: list[str]) -> None:
    argv = Argv(words)
    number = ranks.asked_for(argv)
    if number > 1:
        config = with_run(ResumeFlags, argv).config
        planning.decided(config, named_settings(argv)).on_ranks(number)  # refuse before starting ranks
        ranks.launch("resume", argv, number)
    with ranks.as_a_rank():
        with Output(shown=True) as output:
            with group.failing_together():
                flags = with_run(ResumeFlags, argv)
                record = RunRecord(flags.run)
                config = planning.decided(flags.config, named_settings(argv), recorded=record.config)
            outcome = training.resume(record, config, output=output)
        show(outcome)


def smaller_batch(flags: TrainFlags, argv: Argv) -> str:
    """The flags of the same run with a quarter of the envs; empty if it has only one env."""
    num_envs = flags.config.on_ranks(collectives.world_size()).num_envs
    if num_envs == 1:
        return ""
    others = argv.without("num-envs", "envs-per-rank", "run-dir", "name")
    return shlex.join([*others, "--num-envs", str(max(1, num_envs // 4))])


def show(outcome: Outcome, smaller: str = "") -> None:
    """Print the outcome of a run, and what to try next; after a signal exit with the code that a scheduler
    expects. `smaller` holds the flags of the same run at a smaller batch."""
    if outcome.stopped_by is None:
        show_results(outcome)
        show_next_steps(outcome, smaller)
        return
    with lost_output.tolerated():  # the signal may mean that the terminal was closed
        show_results(outcome)
        print(f"\n{outcome.how_to_continue()}")
    sys.exit(128 + outcome.stopped_by)


def show_results(outcome: Outcome) -> None:
    console = Console(highlight=False)
    print()
    if outcome.training_return is not None:
        episodes = counted(outcome.training_episodes, "episode")
        returned = f"{number_text(outcome.training_return, 6)} mean return over the last {episodes}"
        print(wrapped(f"training    {returned}", console))
    if outcome.evaluation is not None:
        print(wrapped(f"evaluation  {outcome.evaluation.sentence()}", console))
    if outcome.best is not None and outcome.best.env_steps is not None:
        best = (
            f"best        {number_text(outcome.best.score, 6)} mean return of the evaluation at "
            f"{outcome.best.env_steps:,} env steps (--checkpoint best)"
        )
        print(wrapped(best, console))
    curve = sparkline(RunRecord(outcome.folder).rows)
    encoding = sys.stdout.encoding or "utf-8"
    if curve and curve.encode(encoding, "ignore").decode(encoding) == curve:
        print(f"curve       {curve}")
    print(f"run folder  {outcome.folder}")


def show_next_steps(outcome: Outcome, smaller: str) -> None:
    console = Console(highlight=False)
    was_greedy = outcome.evaluation is not None and outcome.evaluation.greedy
    other = "--evaluation.num-envs 100" if was_greedy else "--evaluation.greedy"
    print(f"\nnext:\n  {outcome.command('evaluate')} {other}")
    if smaller:
        for command, what in (
            (f"  anybatch plan {smaller} ", "what changes at another batch size"),
            (f"  anybatch train {smaller}", "train at that batch, to compare the curves"),
        ):
            fits = not console.is_terminal or len(command) + 4 + len(what) <= console.width
            print(f"{command}    {what}" if fits else command.rstrip())
    print(f"  {shlex.join(['anybatch', 'report', str(outcome.folder)])}")
    print(f"  {shlex.join(['tensorboard', '--logdir', str(outcome.folder.parent)])}")


def sparkline(rows: Sequence[Mapping[str, Any]]) -> str:
    """The return of a run over its episodes: ▁▂▅▇█ 21.4 → 498. Empty for fewer than two points."""
    known = [row for row in rows if row.get("charts/episodic_return") is not None]
    parts = groupby(known, key=lambda row: math.ceil(row["env_steps"] * MOST_BARS / rows[-1]["env_steps"]))
    values = [
        fmean(
            [row["charts/episodic_return"] for row in part], [row.get("charts/episodes") or 1 for row in part]
        )
        for part in (list(found) for _, found in parts)
    ]
    if len(values) < 2:
        return ""
    return f"{bars(values)}  {number_text(values[0], 4)} → {number_text(values[-1], 4)}"


def bars(values: Sequence[float]) -> str:
    """A bar for each value, scaled from the lowest to the highest."""
    low, span = min(values), max(values) - min(values)
    if span == 0:
        return BARS[0] * len(values)
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in values)
