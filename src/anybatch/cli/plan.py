"""`anybatch plan`: the batches of a run and what follows from them, without torch."""

import json
import sys
from dataclasses import replace

from rich.console import Console

from anybatch import planning
from anybatch.cli.flags import PlanFlags, PlanFromFlags
from anybatch.cli.parser import Argv, parse
from anybatch.cli.run_flags import number_of_ranks, with_preset
from anybatch.dial import plan_table
from anybatch.dial.other_plans import OtherPlan, paste, plan_for
from anybatch.dial.other_trainers import read_settings, trainer_named
from anybatch.envs.ids import validate_id
from anybatch.errors import UserError
from anybatch.runs import plan_text
from anybatch.runs.display import Output
from anybatch.text import counted


def plan(words: list[str]) -> None:
    argv = Argv(words)
    if "from" in argv:
        plan_from(words)
        return
    number = number_of_ranks(argv)
    # Standard output is for JSON only.
    with Output(shown=True, stream=sys.stderr if "json" in argv else None):
        flags = with_preset(PlanFlags, argv)
    config = flags.config.on_ranks(number)
    validate_id(config.env, config.env_config)
    numbers, notes = planning.plan(config), planning.notes_on_ranks(config, number)
    if flags.json:
        table = plan_table(config, numbers)
        table = replace(table, warnings=(*table.warnings, *notes))
        print(json.dumps(numbers.to_json() | table.to_json(), indent=2, ensure_ascii=False))
    else:
        plan_text.show(config, numbers, notes=notes)


OF_PLAN_FROM = ("--from", "--num-envs", "--json")


def plan_from(words: list[str]) -> None:
    """Show another trainer's configuration at another batch."""
    # A trainer's own settings may be typed as its flags: --num-minibatches=4.
    argv = Argv(
        [
            word.lstrip("-") if "=" in word and word.partition("=")[0] not in OF_PLAN_FROM else word
            for word in words
        ]
    )
    for given in argv.given:
        if given.typed not in OF_PLAN_FROM:
            raise UserError(
                f"{given.typed}: plan --from takes --num-envs and --json; settings are key=value words or a "
                "file"
            )
    flags = parse(PlanFromFlags(), argv)
    trainer = trainer_named(flags.from_)
    if flags.num_envs is None:
        raise UserError("--num-envs is missing: the number of environments of the planned run")
    made = plan_for(trainer, read_settings(trainer, flags.settings), num_envs=flags.num_envs)
    if flags.json:
        print(json.dumps(made.to_json() | {"paste": paste(made)}, indent=2, ensure_ascii=False))
    else:
        show(made)


def show(made: OtherPlan) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = plan_text.WIDTH_IN_A_FILE
    console.print(
        f"{made.trainer.title}, from {made.tuned_at.num_envs:,} to {counted(made.this_run.num_envs, 'env')}\n"
    )
    plan_text.show_table(made.rows, console)
    plan_text.show_notes(made.notes, console)
    console.print(f"\nas {made.trainer.title} settings:\n")
    console.print(paste(made), markup=False, soft_wrap=True)
