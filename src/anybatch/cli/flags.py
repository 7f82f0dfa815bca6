"""The flags of each command, with their defaults and meanings. A class's docstring is its command's help."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from anybatch import presets
from anybatch.cli.offered import PLAYING, WATCHING, Offered
from anybatch.config import AnyConfig, PPOConfig
from anybatch.lab.studies.executor import On
from anybatch.lab.tuning.plan import CHECK_SEEDS, MARGIN, TUNING_SEEDS
from anybatch.runs.folder import NEWEST

# The config's own fields are flags without a prefix: --num-envs, --optimizer.learning-rate. The preset or the
# run determines the algorithm and its config before the flags are parsed, so there is no subcommand for it.
Flags = Annotated[AnyConfig, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]


@dataclass(frozen=True, kw_only=True)
class TrainFlags:
    """Train a policy."""

    command: ClassVar[str] = "train"
    preset: str = presets.DEFAULT
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
    """Show the batches of a run and the hyperparameters that follow from them, without training.

    `anybatch plan --from TRAINER --help` explains how to plan with another trainer's settings.
    """

    command: ClassVar[str] = "plan"
    preset: str = presets.DEFAULT
    """Source of all other settings: a name listed by `anybatch presets`, or a file ending in .toml. Default:
    selected by the environment."""
    config: Flags = field(default_factory=PPOConfig)
    json: bool = False
    """Print the plan as JSON, for programs."""
    ranks: int = 1
    """Learner processes of the planned run, for --envs-per-rank."""


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """A run to read, and settings over the recorded ones."""

    command: ClassVar[str]
    run: tyro.conf.Positional[Path]
    """A run folder, or a folder of runs, of which the newest is used."""
    config: Flags = field(default_factory=PPOConfig)


@dataclass(frozen=True, kw_only=True)
class ResumeFlags(RunFlags):
    """Continue a run from its newest good checkpoint, at the same or another batch size."""

    command: ClassVar[str] = "resume"
    ranks: int = 1
    """Learner processes on this machine. Their number may differ from before."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFlags(RunFlags):
    """A checkpoint of a run."""

    checkpoint: str = NEWEST
    """newest, best (by the evaluations during training, see --evaluation.every-env-steps), or the env steps
    of a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class EvaluateFlags(CheckpointFlags):
    """Evaluate a checkpoint of a run, or of all runs on a suite of games."""

    command: ClassVar[str] = "evaluate"
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
    """Make a video of an agent, from a checkpoint of its run."""

    command: ClassVar[str] = "watch"
    offered: ClassVar[Offered] = WATCHING
    out: Path = Path("watch.gif")
    """The video file to write, ending in .mp4 or .gif."""
    steps: int = 500
    """Number of decisions, one frame each."""
    frames_per_second: int = 30
    """Frames per second of the video."""


@dataclass(frozen=True, kw_only=True)
class ExportFlags(CheckpointFlags):
    """Write the policy of a run for use outside anybatch."""

    command: ClassVar[str] = "export"
    offered: ClassVar[Offered] = PLAYING
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

    command: ClassVar[str] = "push"
    offered: ClassVar[Offered] = PLAYING
    repository: tyro.conf.Positional[str] = ""
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
class PullFlags:
    """Download a policy from the Hugging Face Hub, to evaluate, watch or export it."""

    command: ClassVar[str] = "pull"
    repository: tyro.conf.Positional[str] = ""
    """Name on the Hub, USER/NAME."""
    out: Path | None = None
    """The folder to write, which must not exist. By default runs/NAME."""
    revision: str | None = None
    """Branch, tag or commit; by default the newest."""


@dataclass(frozen=True, kw_only=True)
class TuneFlags:
    """Tune a preset's numbers at a small batch, and check the best of them."""

    command: ClassVar[str] = "tune"
    preset: str | None = None
    """The preset to start from: a name listed by `anybatch presets`, or a file ending in .toml. Default:
    selected by the environment."""
    env: str | None = None
    """Environment to tune on. Default: the preset's."""
    network_factory: Annotated[str | None, tyro.conf.arg(name="network.factory")] = None
    """The preset's own network.factory, my_package:make_network. A function is called only if it is named
    here."""
    trials: int = 40
    """Number of trials: the preset itself, seven random ones, then trials that build on the results (TPE)."""
    jobs: int | None = None
    """Trials that run in parallel. Default: as many as the cores allow. One job tries the same numbers
    whether it was interrupted or not; with several, only the first eight are certain to be the same."""
    budget: str | None = None
    """Time limit, such as 20m or 2h, including the check. The number of trials that fit is printed first."""
    num_envs: int | None = None
    """Envs of the trials, the batch to tune at. Default: a quarter of the preset's."""
    train_at: int | None = None
    """Envs of the final check, the target batch. Default: the preset's."""
    env_steps: int | None = None
    """Length of every run, in trials and check. Default: the preset's total-env-steps."""
    seeds: tuple[int, ...] = TUNING_SEEDS
    """Seeds of each trial, whose areas under the return curve are averaged. The final check uses other seeds,
    above all of these."""
    check_seeds: int = CHECK_SEEDS
    """Number of fresh seeds in the final check."""
    margin: float = MARGIN
    """How much worse than the preset still counts as not worse, where 0 is random play and 1 the best return
    of the preset. It is recorded before the first trial."""
    search: tuple[str, ...] = ()
    """Changed ranges, such as learning-rate=1e-4..1e-2, or clip=fixed for a number that stays. The names are
    learning-rate, entropy-coefficient, discount, gae-lambda, q-lambda, clip, minibatches,
    proximal-center-of-mass, proximal-copy-every, exploration-end, exploration-fraction and
    auxiliary-learning-rate, as far as the algorithm has them."""
    out: Path | None = None
    """Folder of the tuning, in which a second call continues. Default: named after environment and preset, in
    tuning/."""


@dataclass(frozen=True, kw_only=True)
class StudyFlags:
    """Run an experiment from the papers, or your own, and report the outcome."""

    command: ClassVar[str] = "study"
    study: tyro.conf.Positional[str] = ""
    """A study listed by `anybatch study`, or a file ending in .toml."""
    scale: str = "cpu"
    """smoke: seconds, to see that it runs. cpu: hours to days on a few cores. paper: as in the papers."""
    env: tuple[str, ...] = ()
    """Environments instead of the study's own, such as Acrobot-v1."""
    range: tuple[float, ...] = ()
    """Returns of random play and of the tuned base in each of these environments, the fixed scale of all
    differences. --tune prints them. Environments with a published range need none."""
    preset: str | None = None
    """Base for these environments. Default: selected by the environment."""
    network_factory: Annotated[tuple[str, ...], tyro.conf.arg(name="network.factory")] = ()
    """Networks of the study file or preset, my_package:make_network. A function is called only if it is named
    here."""
    seeds: int | None = None
    """Number of seeds. Default: the study's."""
    jobs: int | None = None
    """Cells that run in parallel. Default: as many as the cores allow, here or in the cluster."""
    budget: str | None = None
    """Time limit, such as 20m or 2h: as many parts of the grid and seeds are run as fit, by a short
    measurement."""
    on: On = "local"
    """Where cells run. local: in processes of this machine. ray: on Ray, here or on other machines (extra
    `ray`)."""
    ray_address: str | None = None
    """Address of a Ray cluster, such as auto or 10.0.0.1:6379. None: a private Ray
    on this machine, reachable only from it."""
    out: Path | None = None
    """Folder of the study. Default: named after the study and its flags, in studies/."""
    tune: bool = False
    """Sweep the learning rate of the base on separate seeds, instead of running the study."""
    plan: bool = False
    """Show what would be run, and run nothing."""
    retry_failed: bool = False
    """Run failed cells again."""
