"""`anybatch tune`: tune a preset's numbers at a small batch, and check the result."""

import shlex

from anybatch import api, machine
from anybatch.cli.flags import TuneFlags
from anybatch.cli.parser import Argv, parse
from anybatch.lab.tuning.tune import REPORT_FOLDER
from anybatch.runs.stop import Stopped
from anybatch.text import counted


def tune(words: list[str]) -> None:
    """Tune a preset's numbers at a small batch, and check the best of them."""
    flags = parse(TuneFlags(), Argv(words))
    jobs = machine.available_cores() if flags.jobs is None else flags.jobs
    try:
        outcome = api.tune(
            flags.preset,
            env=flags.env,
            network=flags.network_factory,
            trials=flags.trials,
            jobs=jobs,
            budget=flags.budget,
            num_envs=flags.num_envs,
            train_at=flags.train_at,
            env_steps=flags.env_steps,
            seeds=flags.seeds,
            check_seeds=flags.check_seeds,
            margin=flags.margin,
            search=flags.search,
            out=flags.out,
            progress=True,
        )
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
