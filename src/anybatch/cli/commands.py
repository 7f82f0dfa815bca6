"""The commands and their flags."""

import contextlib
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

import tyro

from anybatch import envs, session
from anybatch import presets as preset_files
from anybatch.cli import help_page, lost_output, ranks, show
from anybatch.cli.flag_values import FLAG_VALUES
from anybatch.cli.help_page import HELP_FLAGS
from anybatch.cli.offered import PLAYING, WATCHING, Offered, offered_by, offering
from anybatch.cli.plan_from import plan_from
from anybatch.cli.preset_choice import choice_by_env
from anybatch.cli.usage_error import as_user_error
from anybatch.cli.words import value_of, without
from anybatch.config import AnyConfig, PPOConfig
from anybatch.dial import Plan, plan_table
from anybatch.distributed import collectives, group
from anybatch.envs.ids import refuse_unknown
from anybatch.errors import EnvError, UserError
from anybatch.networks.own import import_factory
from anybatch.reports import advice, plan_text, video
from anybatch.reports import suites as suite
from anybatch.runs import folder as run_folder
from anybatch.runs.display import Output
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.runs.tag import tag_of
from anybatch.session.decoupled import decoupled_by_default

# The config's own fields are flags without a prefix: --num-envs, --optimizer.learning-rate. The preset or the
# run determines the algorithm and its config before the flags are parsed, so there is no subcommand for it.
Flags = Annotated[AnyConfig, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]


@dataclass(frozen=True, kw_only=True)
class TrainFlags:
    preset: str = preset_files.DEFAULT
    """Source of all other settings: a name listed by `anybatch presets`, or a file ending in .toml. Default:
    selected by the environment."""
    config: Flags = field(default_factory=PPOConfig)
    run_dir: Path = Path("runs")
    """Folder in which run folders are created."""
    name: str | None = None
    """Name of the run folder, with a number appended if it exists. Default: the environment, the preset, what
    differs from it, the seed and the time."""
    ranks: int = 1
    """Learner processes on this machine, which share the environments; on several machines, torchrun starts
    them. Any number gives the same run, up to rounding."""


@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    preset: str = preset_files.DEFAULT
    """Source of all other settings: a name listed by `anybatch presets`, or a file ending in .toml. Default:
    selected by the environment."""
    config: Flags = field(default_factory=PPOConfig)
    json: bool = False
    """Print the plan as JSON, for programs."""
    ranks: int = 1
    """Learner processes of the planned run, for --envs-per-rank."""


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    run: tyro.conf.Positional[Path]
    """A run folder, or a folder of runs, of which the newest is used."""
    config: Flags = field(default_factory=PPOConfig)


@dataclass(frozen=True, kw_only=True)
class ResumeFlags(RunFlags):
    ranks: int = 1
    """Learner processes on this machine. Their number may differ from before."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFlags(RunFlags):
    checkpoint: str = NEWEST
    """newest, best (by the evaluations during training, see --evaluation.every-env-steps), or the env steps
    of a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class EvaluateFlags(CheckpointFlags):
    offered: ClassVar[Offered] = PLAYING
    run: tyro.conf.Positional[Path]
    """A run folder, or a folder of runs, of which the newest is used. With --suite, any number of either; all
    runs in a folder are used."""
    suite: str | None = None
    """atari-5, atari-10 or atari-57: evaluate all runs on the suite's games and summarize them by game."""
    json: bool = False
    """Print the result as JSON, for programs."""


@dataclass(frozen=True, kw_only=True)
class WatchFlags(CheckpointFlags):
    offered: ClassVar[Offered] = WATCHING
    out: Path = Path("watch.gif")
    """The video file to write, ending in .mp4 or .gif."""
    steps: int = 500
    """Number of decisions, one frame each."""
    frames_per_second: int = 30
    """Frames per second of the video."""


NewRun = TypeVar("NewRun", TrainFlags, PlanFlags)
KnownRun = TypeVar("KnownRun", bound=RunFlags)
AnyFlags = TypeVar("AnyFlags", bound=TrainFlags | PlanFlags | RunFlags)
Command = Callable[[list[str]], None]


def train(words: list[str]) -> None:
    """Train a policy."""
    number = ranks.asked_for(words)
    if number > 1:
        with ranks.nothing_shown():  # refuse before starting ranks
            with_preset(TrainFlags, words, train).config.on_ranks(number)
        ranks.launch("train", words, number)
    with ranks.as_a_rank():
        train_here(words)


def train_here(words: list[str]) -> None:
    """Train as the only process, or as one of several ranks."""
    with group.failing_together():
        flags = with_preset(TrainFlags, words, train)
        preset = preset_files.load(flags.preset).config
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
    show.outcome(outcome, smaller=smaller_batch(flags, words))
    advise([str(outcome.folder)])


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


def smaller_batch(flags: TrainFlags, words: list[str]) -> str:
    """The flags of the same run with a quarter of the envs; empty if it has only one env."""
    num_envs = flags.config.on_ranks(collectives.world_size()).num_envs
    if num_envs == 1:
        return ""
    others = words
    for flag in ("--num-envs", "--envs-per-rank", "--run-dir", "--name"):
        others = without(flag, others)
    return shlex.join([*others, "--num-envs", str(max(1, num_envs // 4))])


def plan(words: list[str]) -> None:
    """Show the batches of a run and the numbers that follow from them, without training.

    `anybatch plan --from TRAINER --help` explains how to plan with another trainer's settings.
    """
    if any(word.partition("=")[0] == "--from" for word in words):
        plan_from(words)
        return
    number = ranks.number_in(words)
    flags = with_preset(PlanFlags, words, plan)
    config = flags.config.on_ranks(number)
    refuse_unknown(config.env, config.env_config)
    numbers = session.plan(config)
    if flags.json:
        shown = numbers.to_json() | plan_table(config, numbers).to_json()
        print(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        plan_text.show(config, numbers)


def resume(words: list[str]) -> None:
    """Continue a run from its newest good checkpoint, at the same or another batch size."""
    number = ranks.asked_for(words)
    if number > 1:
        with ranks.nothing_shown():
            resume_flags(words).config.on_ranks(number)
        ranks.launch("resume", words, number)
    with ranks.as_a_rank():
        resume_here(words)


def resume_flags(words: list[str]) -> ResumeFlags:
    flags = with_run(ResumeFlags, words, resume)
    if value_of("--num-envs", words) is not None:
        flags.config.refuse_named_num_envs()
    return flags


def resume_here(words: list[str]) -> None:
    """Resume as the only process, or as one of several ranks."""
    with group.failing_together():
        flags = resume_flags(words)
        record = RunRecord(flags.run)
        # A run that already had actors keeps the choice made then.
        chosen = names_policy(words) or record.config.collection is not None
        output = Output(shown=True)
        config = decoupled_by_default(flags.config, output.say, policy_is_chosen=chosen)
    outcome = session.resume(record, config, show_plan=show_plan, output=output)
    exit_if_stopped(outcome)
    show.outcome(outcome)


def evaluate(words: list[str]) -> None:
    """Evaluate a checkpoint of a run, or of all runs on a suite of games."""
    name = value_of("--suite", words)
    if name is not None and not HELP_FLAGS & set(words):
        evaluate_suite(name, words)
        return
    flags = with_run(EvaluateFlags, words, evaluate)
    played = play(flags)
    print(json.dumps(played.to_json(), indent=2) if flags.json else played.text())


def evaluate_suite(name: str, words: list[str]) -> None:
    """Evaluate each of the named runs as `evaluate` does, then summarize them."""
    suite.refuse_unknown(name)
    others = without("--suite", words)
    named = list(takewhile(lambda word: not word.startswith("-"), others))
    if not named:
        raise UserError("name the run folders before the other flags, such as runs/ for all runs in it")
    folders = dict.fromkeys(run for path in named for run in run_folder.find_runs(Path(path)))
    options = others[len(named) :]
    for folder in [folder for folder in folders if not RunRecord(folder).has_checkpoint]:
        print(f"{folder} has no checkpoint yet and is left out", file=sys.stderr)
        del folders[folder]
    if not folders:
        raise UserError("none of the named runs has a checkpoint to evaluate")
    runs = [with_run(EvaluateFlags, [str(folder), *options], evaluate) for folder in folders]
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
    output = Output(shown=True, stream=sys.stderr)  # stdout is for the result
    result, env_steps = session.evaluate_run(
        RunRecord(flags.run), flags.config, output=output, checkpoint=flags.checkpoint
    )
    return suite.PlayedRun(str(flags.run), flags.config.env, env_steps, result)


def watch(words: list[str]) -> None:
    """Make a video of an agent, from a checkpoint of its run."""
    flags = with_run(WatchFlags, words, watch)
    played = video.watch(
        RunRecord(flags.run),
        flags.config,
        flags.out,
        steps=flags.steps,
        frames_per_second=flags.frames_per_second,
        output=Output(shown=True, stream=sys.stderr),
        checkpoint=flags.checkpoint,
    )
    print(played.sentence())


def advise(words: list[str]) -> None:
    """Say what a run's metrics suggest about its settings."""
    if HELP_FLAGS & set(words):
        print("usage: anybatch advise RUN\n\nRUN: a run folder, or a folder of runs (the newest is used).")
        return
    if len(words) != 1 or words[0].startswith("-"):
        raise UserError("name one run folder, such as runs/ for the newest run in that folder")
    record = RunRecord(Path(words[0]))
    rows = record.rows
    if not rows:
        print(f"\nadvice: {record.folder.name} has no metrics yet")
        return
    show.advice(record.folder, advice.advise(rows, record.config))


def with_preset(kind: type[NewRun], words: list[str], command: Command) -> NewRun:
    """Parse twice: the preset becomes the defaults, so that --help shows its numbers."""
    name, choice = value_of("--preset", words), None
    if name is None:
        try:
            choice = choice_by_env(words)
        except EnvError:
            # Help needs no environment, and a wrong flag is reported first.
            parse(kind(config=preset_files.load(preset_files.DEFAULT).config), words, command)
            raise
        name = choice.preset if choice else preset_files.DEFAULT
    flags = parse(kind(preset=name, config=preset_files.load(name).config), words, command)
    if value_of("--num-envs", words) is not None:
        flags.config.refuse_named_num_envs()
    # Standard output is for JSON only.
    to_reader = sys.stderr if isinstance(flags, PlanFlags) and flags.json else sys.stdout
    say = partial(show.sentence, stream=to_reader)
    if choice is not None:
        say(f"preset {choice.preset}: {choice.reason}; --preset selects another")
    config = decoupled_by_default(flags.config, say, policy_is_chosen=names_policy(words))
    return replace(flags, config=config)


def names_policy(words: list[str]) -> bool:
    return value_of("--proximal.policy", words) is not None


def with_run(kind: type[KnownRun], words: list[str], command: Command) -> KnownRun:
    """Parse twice: the run's recorded config becomes the defaults."""
    if not words or words[0].startswith("-"):
        if HELP_FLAGS & set(words):
            return parse(kind(run=Path("RUN")), words, command)
        raise UserError("name the run folder first, such as runs/ for the newest run in that folder")
    record = RunRecord(Path(words[0]))
    flags = parse(kind(run=record.folder, config=record.config), words, command)
    return replace(flags, run=record.folder)


def parse(defaults: AnyFlags, words: list[str], command: Command) -> AnyFlags:
    """The flags applied over their defaults, whose numbers refer to the batch of the defaults."""
    defaults = replace(defaults, config=defaults.config.pinned())
    prog, description = f"anybatch {command.__name__}", command.__doc__
    if {"-h", "--help"} & set(words):
        help_page.show(defaults, prog, description)
        sys.exit(0)
    # For a non-empty dict, tyro makes one flag per key and accepts no others.
    options = defaults.config.env_config.options
    defaults = with_options(defaults, {})
    rules = offering(defaults.config, offered_by(defaults))
    if "--help-all" in words:
        with FLAG_VALUES, rules:
            tyro.cli(type(defaults), default=defaults, args=["--help"], prog=prog, description=description)
    known, settings = help_page.flag_names(defaults), help_page.setting_names(defaults.config)
    with as_user_error(known, of_training=settings - known), FLAG_VALUES, rules:
        flags = tyro.cli(type(defaults), default=defaults, args=words, prog=prog, description=description)
    if value_of("--env", words) is not None:  # named here, not by a preset or by the record of a run
        envs.import_as_named(flags.config.env)
    if value_of("--network.factory", words) is not None and flags.config.network.factory is not None:
        import_factory(flags.config.network.factory, trusted=True)
    return with_options(flags, options | flags.config.env_config.options)


def with_options(flags: AnyFlags, options: dict[str, str]) -> AnyFlags:
    env_config = replace(flags.config.env_config, options=options)
    return replace(flags, config=replace(flags.config, env_config=env_config))
