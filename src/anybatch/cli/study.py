"""`anybatch study` and `anybatch tune`: many runs, and what follows from them."""

import contextlib
import math
import shlex
from dataclasses import replace
from pathlib import Path

from anybatch import api, machine
from anybatch.cli.lab_flags import StudyFlags, TuneFlags
from anybatch.cli.parser import Argv, parse
from anybatch.cli.reporting import REPORT_FOLDER
from anybatch.config import EnvConfig
from anybatch.envs import import_as_named
from anybatch.envs.ids import validate_id
from anybatch.errors import ConfigError
from anybatch.lab import statistics, verdicts
from anybatch.lab.pages import report_files, study_parts, study_text
from anybatch.lab.pages import studies as study_page
from anybatch.lab.studies import duration, executor, files, opening, runner
from anybatch.lab.studies.files import Study
from anybatch.lab.studies.plan import Request, make_plan
from anybatch.lab.studies.runner import StudySchedule
from anybatch.lab.tuning.tune import REPORT_FOLDER as TUNING_REPORT
from anybatch.lab.verdicts.power import outlooks
from anybatch.networks import custom as custom_networks
from anybatch.runs import folder as run_folder
from anybatch.runs.display import Output
from anybatch.runs.stop import Stopped
from anybatch.text import counted

VERDICTS_FILE = "verdicts.json"


def study(words: list[str]) -> None:
    if not words:
        study_text.show_list([files.load(name) for name in files.names()])
        return
    flags = parse(StudyFlags(), Argv(words))
    asked = files.load(flags.study)
    verdicts.validate_rules(asked)
    request = request_of(flags)
    for env in request.envs:
        import_as_named(env)
    for factory in flags.network_factory:
        custom_networks.import_as_named(factory)
    for env in request.envs or asked.scale(request.scale).envs:
        validate_id(env, EnvConfig())
    plan = make_plan(asked, request)  # refuses a wrong request before there is a folder
    if flags.plan:
        study_text.show_plan(plan)
        return
    run(asked, request, flags, again=shlex.join(["anybatch", "study", *words]))


def request_of(flags: StudyFlags) -> Request:
    for name, number in (("seeds", flags.seeds), ("jobs", flags.jobs)):
        if number is not None and number < 1:
            raise ConfigError(f"--{name} {number}: must be at least 1")
    if flags.preset is not None and not flags.env:
        raise ConfigError(
            f"--preset {flags.preset} needs --env: it is the base for the environments named there"
        )
    if len(set(flags.env)) < len(flags.env):
        raise ConfigError(f"--env {' '.join(flags.env)}: must not repeat an environment")
    if flags.range and len(flags.range) != 2 * len(flags.env):
        raise ConfigError(
            f"--range has {counted(len(flags.range), 'number')}: it needs a low and a high return for each "
            "environment of --env"
        )
    for low, high in zip(flags.range[::2], flags.range[1::2], strict=True):
        if not low < high < math.inf or low == -math.inf:
            raise ConfigError(f"--range {low:g} {high:g}: must be a low and a high return")
    if flags.ray_address is not None and flags.on != "ray":
        raise ConfigError(f"--ray-address {flags.ray_address} is for --on ray, but --on is {flags.on}")
    return Request(
        study=flags.study,
        scale=flags.scale,
        envs=flags.env,
        preset=flags.preset,
        seeds=flags.seeds,
        budget_seconds=duration.of_budget(flags.budget),
        tune=flags.tune,
        ranges=flags.range,
    )


def run(asked: Study, request: Request, flags: StudyFlags, *, again: str) -> None:
    """Open the folder, run what is missing, and report the outcome. `again` is the command line."""
    statistics.stats()  # without scipy there is no verdict: say so before hours of training
    out = flags.out or opening.default_folder(request)
    chosen = executor.start(flags.on, ray_address=flags.ray_address, jobs=flags.jobs, threads=asked.threads)
    with (
        contextlib.closing(chosen),
        run_folder.made_and_locked(out, what="study"),
        Output(shown=True) as output,
    ):
        plan = opening.open_study(asked, request, out, jobs=chosen.jobs)
        study_text.show_plan(plan)
        try:
            schedule = StudySchedule(out, plan, retry_failed=flags.retry_failed)
            runner.run(schedule, chosen, output=output, named_envs=request.envs)
        except Stopped as stopped:
            raise Stopped(stopped.signal, f"{stopped} Continue with: {again}") from None
    conclude(out)
    if plan.tune:
        tuned = study_parts.read(out)
        study_text.show_ranges(tuned)
        with contextlib.suppress(ConfigError):  # the study itself may lack the ranges that were just shown
            study_text.show_outlooks(outlooks(make_plan(asked, replace(request, tune=False)), tuned.scores))


def conclude(out: Path) -> None:
    """Write and show the verdicts on the finished cells, and the page about them."""
    view = study_parts.read(out)
    run_folder.write_json(out / VERDICTS_FILE, [verdict.to_json() for verdict in view.verdicts])
    study_text.show_results(out, view)
    again = ["anybatch", "report", str(out)]
    made = study_page.report(view, again)
    page = report_files.write(made, out / REPORT_FOLDER, within=out, with_pictures=False)
    print(f"page    {page}\n\nnext:\n  {shlex.join(again)}    the same with its figures as PNG and SVG")


def tune(words: list[str]) -> None:
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
    print(f"page    {outcome.folder / TUNING_REPORT / 'index.html'}")
    if not outcome.is_worse:
        print(f"\nnext:\n  {shlex.join(outcome.train_words())}")
