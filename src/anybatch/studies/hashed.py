"""Reading plans, which carry a hash of their content: a plan that was changed later is refused."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from anybatch.errors import UserError
from anybatch.runs import folder as run_folder


class Hashed(Protocol):
    @property
    def hash(self) -> str: ...


Plan = TypeVar("Plan", bound=Hashed)


def read_hashed(
    path: Path, from_json: Callable[[Mapping[str, Any]], Plan], *, schema: int, what: str
) -> Plan | None:
    """The plan in a file; None if there is none yet. `what` names the kind of plan in a sentence."""
    if not path.exists():
        return None
    data = run_folder.read_json(path)
    try:
        if data["schema"] != schema:
            raise UserError(f"{path} has schema {data['schema']}; this version reads schema {schema}")
        plan, recorded = from_json(data), data["hash"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged: it is not {what} ({error!r})") from None
    if plan.hash != recorded:
        raise UserError(f"{path} was changed after it was written: its hash does not match its content")
    return plan
