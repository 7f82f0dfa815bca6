"""Plan files: JSON with a hash of all that decides the results, so that a plan changed later is refused."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from anybatch.errors import UserError
from anybatch.lab.studies.cells import BINS, CELLS, Origin
from anybatch.runs import folder as run_folder
from anybatch.storage.safe_files import Folder

SHOWN_DIFFERENCES = 3


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """What is run and how it is judged, fixed before the first cell: the plan of a study or of a tuning."""

    FILE: ClassVar[str]
    SCHEMA: ClassVar[int]
    WHAT: ClassVar[str]
    """The kind of plan, in messages."""
    NOT_HASHED: ClassVar[tuple[str, ...]]
    """Entries of the file that do not decide the results."""

    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    bins: int = BINS
    recorded_hash: str | None = field(default=None, compare=False, repr=False)
    """The hash of a plan that was read: a later version may have other entries, and compute another one."""

    @property
    def hash(self) -> str:
        return self.recorded_hash or self._hash

    @property
    def is_known_whole(self) -> bool:
        """Whether this version knows all that decides the results: of a plan that was read, it may not."""
        return self.hash == self._hash

    @cached_property  # takes milliseconds, and every cell is compared with it
    def _hash(self) -> str:
        return hash_of(self.decisive())

    @property
    def origin(self) -> Origin:
        """What a worker needs to know of the plan."""
        return Origin(hash=self.hash, bins=self.bins, facts=self.facts)

    def entries(self) -> dict[str, Any]:
        """All entries except the hash, as plain values."""
        names = [entry.name for entry in fields(self) if entry.name != "recorded_hash"]
        return {"schema": self.SCHEMA} | {name: getattr(self, name) for name in names}

    def decisive(self) -> dict[str, Any]:
        """The entries that decide the results."""
        return {name: value for name, value in self.entries().items() if name not in self.NOT_HASHED}

    @abstractmethod
    def by_name(self) -> dict[str, Any]:
        """The decisive entries, with lists as tables, so that a difference can be named."""

    def to_json(self) -> dict[str, Any]:
        return {"hash": self.hash} | self.entries()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        known = {entry.name: data[entry.name] for entry in fields(cls) if entry.name in data}
        if not isinstance(data["facts"], Mapping):
            raise TypeError("facts is not a table")
        return cls(**known | cls.parsed(data) | {"recorded_hash": data["hash"]})

    @classmethod
    @abstractmethod
    def parsed(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """The entries that are not plain values."""

    @classmethod
    def verified(cls, data: Mapping[str, Any], *, where: Path) -> Self:
        """The plan that the content of a file describes.

        The hash is that of the data, whatever this version reads of it.
        """
        if isinstance(data, Mapping) and "schema" not in data:
            raise UserError(f"{where} is not {cls.WHAT}")
        try:
            if data["schema"] != cls.SCHEMA:
                raise UserError(
                    f"{where} has schema {data['schema']}; this version reads schema {cls.SCHEMA}"
                )
            plan, recorded = cls.from_json(data), data["hash"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{where} is damaged: it is not {cls.WHAT} ({error!r})") from None
        if hash_of({name: value for name, value in data.items() if name not in cls.NOT_HASHED}) != recorded:
            raise UserError(f"{where} was changed after it was written: its hash does not match its content")
        return plan

    @classmethod
    def read(cls, out: Path) -> Self | None:
        """The plan in a folder; None if there is none yet."""
        path = out / cls.FILE
        return cls.verified(run_folder.read_json(path), where=path) if path.exists() else None

    def write(self, out: Path) -> None:
        with Folder.opened(out / CELLS, within=out, make=True):
            pass
        run_folder.write_json(out / self.FILE, self.to_json())

    def validate_same_plan(self, out: Path, there: Self) -> None:
        """Refuse a folder that holds another plan than this one, naming what differs."""
        if there.hash == self.hash:
            return
        found = list(differences(there.by_name(), self.by_name())) or ["its lists are in another order"]
        more = f" and {len(found) - SHOWN_DIFFERENCES:,} more" if len(found) > SHOWN_DIFFERENCES else ""
        raise UserError(
            f"{out} holds another plan: {'; '.join(found[:SHOWN_DIFFERENCES])}{more}. Choose another folder "
            "with --out, or use the settings of that plan"
        )


def hash_of(decisive: Mapping[str, Any]) -> str:
    """SHA-256 of what decides the results of a plan."""
    text = json.dumps(decisive, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


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
