"""The flags of each command, with their defaults and meanings. A class's docstring is its command's help."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from anybatch import presets
from anybatch.config import AnyConfig, EnvConfig, EvaluationConfig, PPOConfig
from anybatch.runs.folder import NEWEST


def names_in(group: str, kind: type[EnvConfig] | type[EvaluationConfig]) -> set[str]:
    return {f"{group}.{field.name.replace('_', '-')}" for field in dataclasses.fields(kind)}


PLAYING = frozenset(
    {"env", "seed", "device", "threads", "precision", "network.factory", "exploration.end"}
    | names_in("env-config", EnvConfig)
    - {f"env-config.{name}" for name in ("time-limit", "actions", "log-infos")}
    | names_in("evaluation", EvaluationConfig) - {"evaluation.every-env-steps"}
)
"""The settings that an evaluation of a trained policy reads, with or without an export."""
WATCHING = frozenset(
    name for name in PLAYING if not name.startswith("evaluation.") or name == "evaluation.greedy"
)
"""The settings that a video of a trained policy reads."""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags of a command: its fields, and the settings of a run where it has a `config`."""

    positional: ClassVar[tuple[str, ...]] = ()
    """Fields whose values are given without a flag, in this order."""
    required: ClassVar[str] = ""
    """What is said if the first of them is missing; empty if it may be."""
    common: ClassVar[tuple[str, ...]] = ()
    """Flags that `--help` explains, in this order, if not all. `--help-all` explains every flag."""
    offered: ClassVar[frozenset[str] | None] = None
    """The settings of a run that have an effect on the command; None: all."""
    example: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class SettingsFlags(Flags):
    """Flags over the settings of a run, which have no prefix: --num-envs, --optimizer.learning-rate.

    The preset or the run that the command line names determines the algorithm and the defaults.
    """

    config: AnyConfig = field(default_factory=lambda: PPOConfig().pinned())


@dataclass(frozen=True, kw_only=True)
class NewRunFlags(SettingsFlags):
    """The flags of commands about a run that does not exist yet."""

    preset: str = presets.DEFAULT
    """Source of all other settings: a name listed by `anybatch presets`, or a file ending in .toml. Default:
    selected by the environment."""


OF_TRAINING = (
    *("env", "preset", "num-envs", "total-env-steps", "seed", "rescale", "optimizer.learning-rate"),
    *("objective.clip", "update.epochs", "num-steps", "update.minibatches-per-epoch", "device"),
)
"""The settings that people change first."""


@dataclass(frozen=True, kw_only=True)
class TrainFlags(NewRunFlags):
    """Train a policy. The settings are those of a preset, rescaled to the batch of this run."""

    common = (*OF_TRAINING, "name", "run-dir", "ranks")
    example = "anybatch train --env minatar:Breakout --num-envs 16 --seed 2"
    run_dir: Path = Path("runs")
    """Folder in which run folders are created."""
    name: str | None = None
    """Name of the run folder, with a number appended if it exists. Default: the environment, the preset, what
    differs from it, the seed and the time."""
    ranks: int = 1
    """Learner processes on this machine, which share the environments; on several machines, torchrun starts
    them. Any number gives the same run, up to rounding."""


@dataclass(frozen=True, kw_only=True)
class PlanFlags(NewRunFlags):
    """Show the batches of a run and the hyperparameters that follow from them, without training.

    `anybatch plan --from TRAINER --help` explains how to plan with another trainer's settings.
    """

    common = (*OF_TRAINING, "ranks", "json")
    example = "anybatch plan --env Breakout-v5 --num-envs 512"
    json: bool = False
    """Print the plan as JSON, for programs."""
    ranks: int = 1
    """Learner processes of the planned run, for --envs-per-rank."""


@dataclass(frozen=True, kw_only=True)
class PlanFromFlags(Flags):
    """Show another trainer's configuration at another number of environments, in its own settings."""

    positional = ("settings",)
    example = "anybatch plan --from sb3 n_envs=8 n_steps=128 batch_size=256 --num-envs 64"
    settings: tuple[str, ...] = ()
    """Settings by the trainer's own names, such as learning_rate=3e-4, at their tuned batch; or a JSON or
    YAML file with them. Later words override earlier ones."""
    from_: str = ""
    """The trainer: sb3, cleanrl, rsl_rl, purejaxrl or rllib."""
    num_envs: int | None = None
    """Environments of the planned run."""
    json: bool = False
    """Print the plan as JSON, for programs."""


@dataclass(frozen=True, kw_only=True)
class RunFlags(SettingsFlags):
    """A run to read, and settings over the recorded ones."""

    positional = ("run",)
    required = "name the run folder first, such as runs/ for the newest run in that folder"
    run: Path = Path("runs")
    """A run folder, or a folder of runs, of which the newest is used."""


@dataclass(frozen=True, kw_only=True)
class ResumeFlags(RunFlags):
    """Continue a run from its newest good checkpoint, at the same or another batch size."""

    common = (
        *("num-envs", "total-env-steps", "num-steps", "rescale", "optimizer.learning-rate", "env"),
        *("network.factory", "device", "threads", "ranks"),
    )
    example = "anybatch resume runs/ --num-envs 32 --total-env-steps 2M"
    ranks: int = 1
    """Learner processes on this machine. Their number may differ from before."""


OF_PLAYING = ("checkpoint", "env", "network.factory", "seed", "device")


@dataclass(frozen=True, kw_only=True)
class CheckpointFlags(RunFlags):
    """A checkpoint of a run."""

    offered = PLAYING
    checkpoint: str = NEWEST
    """newest, best (by the evaluations during training, see --evaluation.every-env-steps), or the env steps
    of a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class EvaluateFlags(CheckpointFlags):
    """Evaluate a checkpoint of a run, or of all runs on a suite of games."""

    common = (
        *("evaluation.num-envs", "evaluation.episodes-per-env", "evaluation.greedy"),
        *(*OF_PLAYING, "suite", "json"),
    )
    example = "anybatch evaluate runs/ --evaluation.num-envs 100 --evaluation.greedy"
    run: Path = Path("runs")
    """A run folder, or a folder of runs, of which the newest is used. With --suite, any number of either; all
    runs in a folder are used."""
    suite: str | None = None
    """atari-5, atari-10 or atari-57: evaluate all runs on the suite's games and summarize them by game."""
    json: bool = False
    """Print the result as JSON, for programs."""


@dataclass(frozen=True, kw_only=True)
class WatchFlags(CheckpointFlags):
    """Make a video of an agent, from a checkpoint of its run."""

    offered = WATCHING
    common = (
        *("out", "steps", "frames-per-second", "evaluation.greedy"),
        *OF_PLAYING,
    )
    example = "anybatch watch runs/ --out agent.mp4 --evaluation.greedy"
    out: Path = Path("watch.gif")
    """The video file to write, ending in .mp4 or .gif."""
    steps: int = 500
    """Number of decisions, one frame each."""
    frames_per_second: int = 30
    """Frames per second of the video."""


@dataclass(frozen=True, kw_only=True)
class ExportFlags(CheckpointFlags):
    """Write the policy of a run for use outside anybatch."""

    common = ("onnx", "hub", "video", *OF_PLAYING)
    example = "anybatch export runs/ --onnx agent.onnx"
    onnx: Path | None = None
    """Write the policy with its observation normalizer as this ONNX file. It outputs greedy actions and what
    sampling needs, for any number of observations at once (needs the extra `onnx`)."""
    hub: Path | None = None
    """Write a new folder for the Hugging Face Hub: model card with an evaluation, weights, config, video.
    With --onnx, the folder also holds an ONNX file."""
    video: bool = True
    """Include a video of the agent in that folder (needs the extra `video`)."""


@dataclass(frozen=True, kw_only=True)
class PushFlags(CheckpointFlags):
    """Publish a run's policy, or a folder of export --hub, on the Hugging Face Hub."""

    positional = ("run", "repository")
    common = ("private", "update", "onnx", "video", *OF_PLAYING)
    example = "anybatch push runs/ my-name/my-agent --private"
    repository: str = ""
    """Name on the Hub, USER/NAME."""
    private: bool = False
    """Make the repository visible only to you."""
    update: bool = False
    """Upload into an existing repository, replacing the files of an earlier version."""
    onnx: bool = False
    """Also publish the policy as an ONNX file (needs the extra `onnx`)."""
    video: bool = True
    """Publish a video of the agent (needs the extra `video`)."""


@dataclass(frozen=True, kw_only=True)
class PullFlags(Flags):
    """Download a policy from the Hugging Face Hub, to evaluate, watch or export it."""

    positional = ("repository",)
    required = "name the repository: anybatch pull USER/NAME"
    example = "anybatch pull my-name/my-agent"
    repository: str = ""
    """Name on the Hub, USER/NAME."""
    out: Path | None = None
    """The folder to write, which must not exist. Default: runs/NAME."""
    revision: str | None = None
    """Branch, tag or commit. Default: the newest."""


@dataclass(frozen=True, kw_only=True)
class AdviseFlags(Flags):
    """Suggest changes to the settings of a run, based on its metrics."""

    positional = ("run",)
    required = "name one run folder, such as runs/ for the newest run in that folder"
    example = "anybatch advise runs/"
    run: Path = Path("runs")
    """A run folder, or a folder of runs, of which the newest is used."""


@dataclass(frozen=True, kw_only=True)
class ReportFlags(Flags):
    """Write a page about runs, a study or a tuning.

    About a study: its verdicts with their intervals, figures, scores, plans and commands. About a tuning: its
    check, what mattered, its numbers and trials. About runs: overlaid curves, plans, advice and commands;
    runs that differ only in their seeds are one line with a range.
    """

    positional = ("paths",)
    required = "name at least one run folder, such as runs/ for the newest run in that folder"
    example = "anybatch report runs/*"
    paths: tuple[Path, ...] = ()
    """Run folders, or folders of runs, of which the newest is used; or one study or tuning, as its folder or
    as a file that --record wrote."""
    out: Path | None = None
    """Folder for index.html, figures/ and data/. Default: report in the folder that was named; for a file
    NAME.jsonl.gz, NAME-report beside it; for several runs, report in the working folder."""
    record: Path | None = None
    """Instead of a page, write all that is needed for it into this one file, ending in .jsonl.gz, to keep or
    to share. For a study or a tuning."""


@dataclass(frozen=True, kw_only=True)
class PlotFlags(Flags):
    """Draw one metric of one or more runs over env steps."""

    positional = ("runs",)
    required = ReportFlags.required
    example = "anybatch plot runs/* --metric losses/approx_kl --out kl.svg"
    runs: tuple[Path, ...] = ()
    """Run folders, or folders of runs, of which the newest is used."""
    metric: str = "charts/episodic_return"
    """A metric named in metrics.jsonl, such as losses/approx_kl."""
    out: Path | None = None
    """The picture file to write, ending in .png, .svg or .pdf."""


@dataclass(frozen=True, kw_only=True)
class DialFlags(Flags):
    """Write a page with a slider for the batch of a preset; every number follows.

    It needs no network and no other file.
    """

    positional = ("studies",)
    example = "anybatch dial --preset mine.toml"
    studies: tuple[Path, ...] = ()
    """Studies, as folders or as files of `report --record`, whose curves are shown at the batch nearest to
    the chosen one."""
    preset: tuple[str, ...] = ()
    """Your own presets, ending in .toml, listed before the built-in ones."""
    out: Path = Path("dial.html")
    """The page to write."""


@dataclass(frozen=True, kw_only=True)
class CheckEnvFlags(Flags):
    """Look for mistakes in an environment, and for what makes it hard to learn, in a few hundred steps.

    The exit code is 0 whatever is found, since some findings are advice.
    """

    positional = ("env",)
    required = "name the environment: anybatch check-env my_package:MyEnv-v0"
    example = "anybatch check-env Pendulum-v1"
    env: str = ""
    """Id of the environment, as for `anybatch train --env`."""
    env_config: EnvConfig = field(default_factory=EnvConfig)


@dataclass(frozen=True, kw_only=True)
class PresetsFlags(Flags):
    """List the presets and the sources of their numbers, or print one."""

    positional = ("name",)
    example = "anybatch presets atari"
    name: str = ""
    """Print this preset, or a file ending in .toml, with the origin of each number. A part of a name, such as
    atari, lists the presets whose names contain it."""
    json: bool = False
    """Print JSON, for programs."""


@dataclass(frozen=True, kw_only=True)
class DoctorFlags(Flags):
    """Check this machine: engines, libraries, speed."""

    example = "anybatch doctor"
    json: bool = False
    """Print JSON, for programs."""
