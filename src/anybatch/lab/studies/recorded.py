"""Recorded studies and tunings: each packed into one file that later versions read.

NAME.jsonl.gz is JSON by lines, without NaN, compressed by gzip. Equal content has equal bytes. The first line
is the header:

    schema      1
    kind        study or tuning
    plan        the plan of the study, or of a tuning's final check, as in plan.json (see cells.py), but
                without `cells`, which are rows. Its hash covers them and the verdict rules
    tuning, importances, folder, preset_file
                only of a tuning: see anybatch.lab.tuning.outcome

Every further line is a row. Those of a study are the cells of its plan in the plan's order, with the keys of
cells/NAME.json except schema and plan_hash. A cell that has not been run has the status "not run" and ends
with it. The commit that a row comes from is in its facts.

The settings of a run, `config`, are plain JSON that no config class reads, and the hash is that of the JSON.
So neither new names of settings nor new entries of plans touch recorded files.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anybatch.errors import DiskError, UserError, cause_of
from anybatch.lab.studies import cells
from anybatch.lab.studies.cells import DONE, Result
from anybatch.lab.studies.plan import StudyPlan
from anybatch.storage import json_text, safe_files

SUFFIX = ".jsonl.gz"
SCHEMA = 1
STUDY, TUNING = "study", "tuning"
NOT_RUN = "not run"
"""The status of a cell that has no result."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """The content of a recorded file."""

    path: Path
    header: Mapping[str, Any]
    rows: Sequence[Row]

    @property
    def kind(self) -> str:
        return self.header["kind"]


def packed(plan: StudyPlan, results: Iterable[Result]) -> tuple[dict[str, Any], Sequence[Row]]:
    """The header's plan, and the rows, of a study."""
    by_name = {result.cell.name: result for result in results}
    rows = [
        by_name[cell.name].to_json() if cell.name in by_name else cell.to_json() | {"status": NOT_RUN}
        for cell in plan.cells
    ]
    if not plan.is_known_whole:
        raise UserError(
            "the plan was made by a version of anybatch whose plans have other entries: record it with that "
            f"version ({plan.facts.get('git_commit') or 'of unknown commit'})"
        )
    return {name: value for name, value in plan.to_json().items() if name != "cells"}, rows


def write_study(path: Path, plan: StudyPlan, results: Iterable[Result]) -> None:
    """Record a study as far as it has been run."""
    header, rows = packed(plan, results)
    write(path, {"kind": STUDY, "plan": header}, rows)


def write(path: Path, header: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write a file in one step. One that is there is replaced only by more of the same plan."""
    if not path.name.endswith(SUFFIX):
        raise UserError(f"{path} must have a name that ends in {SUFFIX}")
    if path.exists():
        validate_nothing_lost(read(path), header, rows)
    buffer = io.BytesIO()
    # Without a name and a time, the bytes depend only on the content.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        for line in ({"schema": SCHEMA} | dict(header), *rows):
            text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            file.write(text.encode() + b"\n")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        safe_files.replace(path, buffer.getvalue())
    except OSError as error:
        raise DiskError(f"{path} could not be written: {cause_of(error)}") from error


def validate_nothing_lost(there: Record, header: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Refuse to replace the record of another plan, or one with results that are not among `rows`."""
    if hash_in(there.header) != hash_in(header):
        raise UserError(f"{there.path} is the record of another plan and would be lost: choose another file")
    done = {row["name"] for row in rows if row["status"] == DONE}
    lost = [row["name"] for row in there.rows if row["status"] == DONE and row["name"] not in done]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise UserError(f"{there.path} has results that would be lost, {lost[0]}{more}: choose another file")


def hash_in(header: Mapping[str, Any]) -> str:
    """The hash of the plan that a header has: that of the search for a tuning."""
    return header["tuning" if header["kind"] == TUNING else "plan"]["hash"]


def read(path: Path) -> Record:
    """A recorded file, whose header and rows are JSON objects of this schema. Others are refused by name."""
    content = lines_of(path)
    if not content:
        raise UserError(f"{path} is cut off: it is empty")
    if not all(isinstance(line, Mapping) for line in content):
        raise UserError(f"{path} is not a recorded study or tuning: its lines are not JSON objects")
    header, *rows = content
    if header.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {header.get('schema')}; this version reads schema {SCHEMA}")
    try:
        named = all(isinstance(row["name"], str) and isinstance(row["status"], str) for row in rows)
        is_known = header["kind"] in (STUDY, TUNING) and isinstance(hash_in(header), str) and named
    except (KeyError, TypeError):
        is_known = False
    if not is_known:
        raise UserError(f"{path} is damaged: it does not have the entries of a recorded study or tuning")
    return Record(path, header, rows)


def lines_of(path: Path) -> list[Any]:
    """The JSON values in a compressed file."""
    try:
        with gzip.open(path, "rb") as file:
            lines = file.read().splitlines()
    except EOFError:
        raise UserError(f"{path} is cut off: the end of the file is missing") from None
    except gzip.BadGzipFile:
        raise UserError(f"{path} is not a recorded study or tuning: it is not compressed by gzip") from None
    except zlib.error:
        raise UserError(f"{path} is damaged: it cannot be decompressed") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {cause_of(error)}") from None
    content: list[Any] = []
    for number, line in enumerate(lines, 1):
        try:
            content.append(json_text.parse(line))
        except ValueError as error:
            raise UserError(f"{path} is damaged: line {number} is not JSON ({error})") from None
    return content


def study_in(record: Record) -> tuple[StudyPlan, list[Result]]:
    """The plan of a recorded study and its results."""
    if record.kind != STUDY:
        raise UserError(f"{record.path} is the record of a {record.kind}, not of a study")
    return unpacked(record.path, record.header["plan"], record.rows)


def unpacked(path: Path, plan: Mapping[str, Any], rows: Sequence[Row]) -> tuple[StudyPlan, list[Result]]:
    """The plan and the results of rows that were `packed`."""
    planned = [{name: row.get(name) for name in cells.CELL_KEYS} for row in rows]
    found = StudyPlan.verified({**plan, "cells": planned}, where=path)
    results: list[Result] = []
    for row in rows:
        if row["status"] != NOT_RUN:
            where = f"{path}, {row['name']},"
            results.append(cells.parsed(row, found.hash, where=where))
            cells.validate_curve_length(results[-1], found.bins, where=where)
    return found, results
