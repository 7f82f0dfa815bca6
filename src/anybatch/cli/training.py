"""`anybatch train` and `anybatch resume`."""

import contextlib
import shlex
import sys
from pathlib import Path

from anybatch import presets, session
from anybatch.cli import lost_output, ranks, show
from anybatch.cli.flags import ResumeFlags, TrainFlags
from anybatch.cli.parser import Argv
from anybatch.cli.playing import show_advice
from anybatch.cli.run_flags import with_preset, with_run
from anybatch.config import AnyConfig
from anybatch.dial import Plan
from anybatch.distributed import collectives, group
from anybatch.planning import decoupled_by_default
from anybatch.runs import plan_text
from anybatch.runs.display import Output
from anybatch.runs.record import RunRecord
from anybatch.runs.tag import tag_of


def train(words: list[str]) -> None:
    """Train a policy."""
    argv = Argv(words)
    number = ranks.asked_for(argv)
    if number > 1:
        with ranks.nothing_shown():  # refuse before starting ranks
            with_preset(TrainFlags, argv).config.on_ranks(number)
        ranks.launch("train", argv, number)
    with ranks.as_a_rank():
        train_here(argv)


def train_here(argv: Argv) -> None:
    """Train as the only process, or as one of several ranks."""
    with group.failing_together():
        flags = with_preset(TrainFlags, argv)
        preset = presets.load(flags.preset).config
    outcome = session.train(
        flags.config,
        preset=Path(flags.preset).stem,
        base=flags.run_dir,
        name=flags.name,
        tag=tag_of(flags.config, preset),
        show_plan=show_plan,
        output=Output(shown=True),
    )
    exit_if_stopped(outcome)
    show.outcome(outcome, smaller=smaller_batch(flags, argv))
    show_advice(RunRecord(outcome.folder))


def show_plan(config: AnyConfig, plan: Plan) -> None:
    """Print the plan of a run that begins; as with its later lines, a reader who is gone does not end it."""
    # SystemExit is what rich raises then, after discarding further output.
    with lost_output.tolerated(), contextlib.suppress(SystemExit):
        plan_text.show(config, plan)


def exit_if_stopped(outcome: session.Outcome) -> None:
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
        with ranks.nothing_shown():
            resume_flags(argv).config.on_ranks(number)
        ranks.launch("resume", argv, number)
    with ranks.as_a_rank():
        resume_here(argv)


def resume_flags(argv: Argv) -> ResumeFlags:
    flags = with_run(ResumeFlags, argv)
    if "num-envs" in argv:
        flags.config.refuse_named_num_envs()
    return flags


def resume_here(argv: Argv) -> None:
    """Resume as the only process, or as one of several ranks."""
    with group.failing_together():
        flags = resume_flags(argv)
        record = RunRecord(flags.run)
        # A run that already had actors keeps the choice made then.
        chosen = "proximal.policy" in argv or record.config.collection is not None
        output = Output(shown=True)
        config = decoupled_by_default(flags.config, output.say, policy_is_chosen=chosen)
    outcome = session.resume(record, config, show_plan=show_plan, output=output)
    exit_if_stopped(outcome)
    show.outcome(outcome)
