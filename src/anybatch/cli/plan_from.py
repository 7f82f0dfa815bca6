"""`anybatch plan --from TRAINER …`: the dial for another trainer's configuration."""

import json

from rich.console import Console

from anybatch.config.require import whole_number
from anybatch.dial.other_plans import OtherPlan, plan_for
from anybatch.dial.other_trainers import TRAINERS, read_settings, trainer_named
from anybatch.dial.paste import paste
from anybatch.errors import UserError
from anybatch.runs import plan_text
from anybatch.text import counted


def plan_from(words: list[str]) -> None:
    """Show another trainer's configuration at another batch."""
    flags, given = split(words)
    if "--from" not in flags:
        raise UserError(f"--from needs a trainer: {', '.join(TRAINERS)}")
    trainer = trainer_named(flags["--from"])
    if "--num-envs" not in flags:
        raise UserError("--num-envs is missing: the number of environments of the planned run")
    try:
        num_envs = whole_number(flags["--num-envs"])
    except ValueError as error:
        raise UserError(f"--num-envs {error}") from None
    made = plan_for(trainer, read_settings(trainer, given), num_envs=num_envs)
    if "--json" in flags:
        print(json.dumps(made.to_json() | {"paste": paste(made)}, indent=2, ensure_ascii=False))
    else:
        show(made)


def split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The flags of this command, and the words with settings."""
    flags: dict[str, str] = {}
    given: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag == "--json":
            flags[flag] = ""
        elif flag in ("--from", "--num-envs"):
            value = value if equals else next(rest, "")
            if not value:
                raise UserError(f"{flag} needs a value")
            flags[flag] = value
        elif word.startswith("--") and not equals:
            raise UserError(
                f"{word}: plan --from takes --num-envs and --json; settings are key=value words or a file"
            )
        else:
            given.append(word)
    return flags, given


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
