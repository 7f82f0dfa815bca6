"""`anybatch tune`: tune a preset's numbers at a small batch, and check the result."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import tyro

from anybatch import machine, presets
from anybatch.cli.flag_values import FLAG_VALUES
from anybatch.cli.help_page import HELP_FLAGS, flag_names
from anybatch.cli.usage_error import as_user_error
from anybatch.config import EnvConfig
from anybatch.envs import import_as_named
from anybatch.envs.ids import refuse_unknown
from anybatch.errors import ConfigError
from anybatch.runs.display import Output
from anybatch.runs.stop import Stopped
from anybatch.studies import duration
from anybatch.text import counted
from anybatch.tuning.plan import CHECK_SEEDS, MARGIN, TUNING_SEEDS, Request
from anybatch.tuning.tune import REPORT_FOLDER
from anybatch.tuning.tune import tune as run_tuning


@dataclass(frozen=True, kw_only=True)
class TuneFlags:
    preset: str | None = None
    """The preset to start from: a name listed by `anybatch presets`, or a file ending in .toml. Default:
    selected by the environment."""
    env: str | None = None
    """Environment to tune on. Default: the preset's."""
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


def tune(words: list[str]) -> None:
    """Tune a preset's numbers at a small batch, and check the best of them."""
    prog = "anybatch tune"
    if HELP_FLAGS & set(words):
        with FLAG_VALUES:
            tyro.cli(TuneFlags, args=["--help"], prog=prog, description=tune.__doc__)
    with as_user_error(flag_names(TuneFlags())), FLAG_VALUES:
        flags = tyro.cli(TuneFlags, args=words, prog=prog, description=tune.__doc__)
    request = request_of(flags)
    jobs = flags.jobs or machine.available_cores()
    try:
        outcome = run_tuning(request, out=flags.out, jobs=jobs, output=Output(shown=True))
    except Stopped as stopped:
        continued = shlex.join(["anybatch", "tune", *words])
        raise Stopped(stopped.signal, f"{stopped} Continue with: {continued}") from None
    best, plan = outcome.best, outcome.plan
    found = "the preset itself" if best.number == 0 else f"trial {best.number}"
    print(f"\nbest    {found}, area {best.shown_value} on the tuning seeds")
    for name, share in outcome.importances.items():
        print(f"        {name} {best.point[name]:.4g} (importance {share:.0%})")
    print(f"check   {outcome.verdict.state}: {outcome.verdict.reason}")
    print(f"preset  {outcome.preset_file}, tuned at {counted(plan.num_envs, 'env')}")
    print(f"page    {outcome.folder / REPORT_FOLDER / 'index.html'}")
    print(f"\nnext:\n  {shlex.join(outcome.train_words())}")


def request_of(flags: TuneFlags) -> Request:
    if flags.jobs is not None and flags.jobs < 1:
        raise ConfigError(f"--jobs {flags.jobs}: must be at least 1")
    budget = duration.of_budget(flags.budget)
    if flags.env is not None:
        import_as_named(flags.env)
        refuse_unknown(flags.env, EnvConfig())
    return Request(
        preset=flags.preset or preset_of(flags.env),
        env=flags.env,
        trials=flags.trials,
        num_envs=flags.num_envs,
        train_at=flags.train_at,
        env_steps=flags.env_steps,
        seeds=flags.seeds,
        check_seeds=flags.check_seeds,
        margin=flags.margin,
        search=flags.search,
        budget_seconds=budget,
    )


def preset_of(env: str | None) -> str:
    return presets.DEFAULT if env is None else presets.for_env(env, EnvConfig()).preset
