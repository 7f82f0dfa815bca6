"""Reading plans, which carry a hash of their content: a plan that was changed later is refused."""

import hashlib
import json
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, TypeVar

from anybatch.errors import UserError
from anybatch.runs import folder as run_folder

Plan = TypeVar("Plan")


def hash_of(decisive: Mapping[str, Any]) -> str:
    """SHA-256 of what decides the results of a plan."""
    text = json.dumps(decisive, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_hashed(path: Path, from_json: Callable[[Mapping[str, Any]], Plan], **kind: Any) -> Plan | None:
    """The plan in a file; None if there is none yet. `kind` is what `verified` needs to know about it."""
    return verified(run_folder.read_json(path), from_json, where=path, **kind) if path.exists() else None


def verified(
    data: Mapping[str, Any],
    from_json: Callable[[Mapping[str, Any]], Plan],
    *,
    where: Path,
    schema: int,
    not_hashed: Container[str],
    what: str,
) -> Plan:
    """The plan that a file has as `data`. `what` names the kind of plan in a sentence.

    The hash is that of the data, whatever this version reads of it.
    """
    try:
        if data["schema"] != schema:
            raise UserError(f"{where} has schema {data['schema']}; this version reads schema {schema}")
        plan, recorded = from_json(data), data["hash"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{where} is damaged: it is not {what} ({error!r})") from None
    if hash_of({name: value for name, value in data.items() if name not in not_hashed}) != recorded:
        raise UserError(f"{where} was changed after it was written: its hash does not match its content")
    return plan
