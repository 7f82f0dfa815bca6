"""`anybatch train` and `anybatch resume`."""

import shlex
import sys
from pathlib import Path

from anybatch import planning, presets, training
from anybatch.cli import ranks, show
from anybatch.cli.flags import ResumeFlags, TrainFlags
from anybatch.cli.parser import Argv
from anybatch.cli.playing import show_advice
from anybatch.cli.run_flags import named_settings, with_preset, with_run
from anybatch.distributed import collectives, group
from anybatch.runs import lost_output
from anybatch.runs.display import Output
from anybatch.runs.record import RunRecord
from anybatch.runs.tag import tag_of


def train(words: list[str]) -> None:
    """Train a policy."""
    argv = Argv(words)
    number = ranks.asked_for(argv)
    if number > 1:
        with_preset(TrainFlags, argv).config.on_ranks(number)  # refuse before starting ranks
        ranks.launch("train", argv, number)
    with ranks.as_a_rank():
        train_here(argv)


def train_here(argv: Argv) -> None:
    """Train as the only process, or as one of several ranks."""
    with Output(shown=True) as output:
        with group.failing_together():
            flags = with_preset(TrainFlags, argv)
            preset = presets.load(flags.preset).config
        outcome = training.train(
            flags.config,
            preset=Path(flags.preset).stem,
            base=flags.run_dir,
            name=flags.name,
            tag=tag_of(flags.config, preset),
            output=output,
        )
    exit_if_stopped(outcome)
    show.outcome(outcome, smaller=smaller_batch(flags, argv))
    show_advice(outcome.folder)


def exit_if_stopped(outcome: training.Outcome) -> None:
    """Print how to continue, and exit with the code that a scheduler expects after a signal."""
    if outcome.stopped_by is not None:
        with lost_output.tolerated():  # the signal may mean that the terminal was closed
            show.outcome(outcome)
        sys.exit(128 + outcome.stopped_by)


def smaller_batch(flags: TrainFlags, argv: Argv) -> str:
    """The flags of the same run with a quarter of the envs; empty if it has only one env."""
    num_envs = flags.config.on_ranks(collectives.world_size()).num_envs
    if num_envs == 1:
        return ""
    others = argv.without("num-envs", "envs-per-rank", "run-dir", "name")
    return shlex.join([*others, "--num-envs", str(max(1, num_envs // 4))])


def resume(words: list[str]) -> None:
    """Continue a run from its newest good checkpoint, at the same or another batch size."""
    argv = Argv(words)
    number = ranks.asked_for(argv)
    if number > 1:
        config = with_run(ResumeFlags, argv).config
        planning.decided(config, named_settings(argv)).on_ranks(number)  # refuse before starting ranks
        ranks.launch("resume", argv, number)
    with ranks.as_a_rank():
        resume_here(argv)


def resume_here(argv: Argv) -> None:
    """Resume as the only process, or as one of several ranks."""
    with Output(shown=True) as output:
        with group.failing_together():
            flags = with_run(ResumeFlags, argv)
            record = RunRecord(flags.run)
            config = planning.decided(flags.config, named_settings(argv), recorded=record.config)
        outcome = training.resume(record, config, output=output)
    exit_if_stopped(outcome)
    show.outcome(outcome)
