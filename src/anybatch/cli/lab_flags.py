"""The flags of `anybatch tune` and `anybatch study`, whose defaults are the lab's."""

from dataclasses import dataclass
from pathlib import Path

from anybatch.cli.flags import Flags
from anybatch.lab.studies.executor import On
from anybatch.lab.tuning.plan import CHECK_SEEDS, MARGIN, TUNING_SEEDS


@dataclass(frozen=True, kw_only=True)
class TuneFlags(Flags):
    """Tune a preset's numbers at a small batch, and check the best of them."""

    example = "anybatch tune --env Acrobot-v1 --trials 40 --budget 2h"
    preset: str | None = None
    """The preset to start from: a name listed by `anybatch presets`, or a file ending in .toml. Default:
    selected by the environment."""
    env: str | None = None
    """Environment to tune on. Default: the preset's."""
    network_factory: str | None = None
    """The preset's own network.factory, my_package:make_network. A function is called only if it is named
    here."""
    trials: int = 40
    """Number of trials, at least 10: the preset itself, seven random ones, then trials that build on the
    results (TPE)."""
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
class StudyFlags(Flags):
    """Run an experiment from the papers, or your own, and judge its claims."""

    positional = ("study",)
    required = "name a study; `anybatch study` lists them"
    example = "anybatch study invariance --env Acrobot-v1 --budget 20m"
    study: str = ""
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
    network_factory: tuple[str, ...] = ()
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
