"""`anybatch plan`: the batches of a run and what follows from them, without torch."""

import json
import sys
from dataclasses import replace

from anybatch import planning
from anybatch.cli.flags import PlanFlags
from anybatch.cli.parsing import with_preset
from anybatch.cli.plan_from import plan_from
from anybatch.cli.words import number_of_ranks
from anybatch.dial import plan_table
from anybatch.envs.ids import refuse_unknown
from anybatch.runs import plan_text
from anybatch.runs.display import Output


def plan(words: list[str]) -> None:
    """Show the batches of a run and the hyperparameters that follow from them."""
    if any(word.partition("=")[0] == "--from" for word in words):
        plan_from(words)
        return
    number = number_of_ranks(words)
    # Standard output is for JSON only.
    with Output(shown=True, stream=sys.stderr if "--json" in words else None):
        flags = with_preset(PlanFlags, words)
    config = flags.config.on_ranks(number)
    refuse_unknown(config.env, config.env_config)
    numbers, notes = planning.plan(config), planning.notes_on_ranks(config, number)
    if flags.json:
        table = plan_table(config, numbers)
        table = replace(table, warnings=(*table.warnings, *notes))
        print(json.dumps(numbers.to_json() | table.to_json(), indent=2, ensure_ascii=False))
    else:
        plan_text.show(config, numbers, notes=notes)
