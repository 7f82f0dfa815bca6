"""Differences between two plans, in words."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anybatch.errors import UserError
from anybatch.lab.studies.plan import NOT_DECISIVE, StudyPlan

SHOWN_DIFFERENCES = 3


def refuse_another(out: Path, there: StudyPlan, here: StudyPlan) -> None:
    """Refuse a folder that holds cells of another plan, naming what differs."""
    if there.hash == here.hash:
        return
    found = list(differences(_by_name(there), _by_name(here)))
    raise refusal(out, found or ["its cells, verdicts or parts left out are in another order"])


def refusal(out: Path, found: Sequence[str]) -> UserError:
    """The error about a folder that holds another plan, with the differences."""
    more = f" and {len(found) - SHOWN_DIFFERENCES:,} more" if len(found) > SHOWN_DIFFERENCES else ""
    return UserError(
        f"{out} holds another plan: {'; '.join(found[:SHOWN_DIFFERENCES])}{more}. Choose another folder with "
        "--out, or use the settings of that plan"
    )


def _by_name(plan: StudyPlan) -> dict[str, Any]:
    """What decides the results, with lists by what their entries name, so that a difference can be named."""
    decisive = {key: value for key, value in plan.to_json().items() if key not in ("hash", *NOT_DECISIVE)}
    return decisive | {
        "cells": {cell.name: cell.to_json() for cell in plan.cells},
        "verdicts": {str(rule.get("name", place)): rule for place, rule in enumerate(plan.verdicts, 1)},
        "left_out": {f"{plan.part_words(entry)} in {entry.env}": entry.reason for entry in plan.left_out},
    }


def differences(there: Any, here: Any, path: str = "") -> Iterator[str]:
    """Each difference between two nested tables, in words."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in [*there, *(key for key in here if key not in there)]:
            inner = f"{path}.{key}" if path else key
            if key not in here:
                yield f"{inner} is in the folder but was not requested"
            elif key not in there:
                yield f"{inner} was requested but is not in the folder"
            else:
                yield from differences(there[key], here[key], inner)
    elif json.loads(json.dumps(there)) != json.loads(json.dumps(here)):
        yield f"{path} is {_short(there)} in the folder, {_short(here)} requested"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
