"""`anybatch tune`: tune a preset's numbers at a small batch, and check the result."""

import shlex

from anybatch import machine, presets
from anybatch.cli.flags import TuneFlags
from anybatch.cli.parser import Argv, parse
from anybatch.config import EnvConfig
from anybatch.envs import import_as_named
from anybatch.envs.ids import refuse_unknown
from anybatch.errors import ConfigError
from anybatch.lab.studies import duration
from anybatch.lab.tuning.plan import Request
from anybatch.lab.tuning.tune import REPORT_FOLDER
from anybatch.lab.tuning.tune import tune as run_tuning
from anybatch.networks import custom as custom_networks
from anybatch.runs.display import Output
from anybatch.runs.stop import Stopped
from anybatch.text import counted


def tune(words: list[str]) -> None:
    """Tune a preset's numbers at a small batch, and check the best of them."""
    flags = parse(TuneFlags(), Argv(words))
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
    print(f"check   {outcome.check_sentence}")
    print(f"preset  {outcome.preset_file}, tuned at {counted(plan.num_envs, 'env')}")
    print(f"page    {outcome.folder / REPORT_FOLDER / 'index.html'}")
    if not outcome.is_worse:
        print(f"\nnext:\n  {shlex.join(outcome.train_words())}")


def request_of(flags: TuneFlags) -> Request:
    if flags.jobs is not None and flags.jobs < 1:
        raise ConfigError(f"--jobs {flags.jobs}: must be at least 1")
    budget = duration.of_budget(flags.budget)
    if flags.network_factory is not None:
        custom_networks.import_as_named(flags.network_factory)
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
