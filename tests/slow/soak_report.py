"""Tables of a soak, in Markdown."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Record = dict[str, Any]

OF_KILLS = (
    *("runs", "kills", "rounds", "lost", "unloadable checkpoints", "counted twice", "rows unlike at a kill"),
    *("left processes", "finished runs unlike"),
)
OF_CASES = (
    "what",
    "cases",
    "commands",
    "exit code 0",
    "one sentence",
    "tracebacks",
    "hangs",
    "outside",
    "other",
)


def head(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |\n{len(columns) * '|---'}|"


def report(records: Mapping[str, Sequence[Record]]) -> str:
    tables: list[str] = []
    if records.get("kills"):
        tables.append(
            "\n".join([head(OF_KILLS), *map(kills_line, *zip(*by_setup(records["kills"]), strict=True))])
        )
    cases = [
        case_line(kind, records[kind]) for kind in ("plans", "trainings", "folders") if records.get(kind)
    ]
    if cases:
        tables.append("\n".join([head(OF_CASES), *cases]))
    return "\n\n".join(tables)


def by_setup(records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    names = dict.fromkeys(record["setup"] for record in records)
    parts = [(name, [record for record in records if record["setup"] == name]) for name in names]
    return [*parts, ("**all**", list(records))]


def kills_line(name: str, records: Sequence[Record]) -> str:
    kills = [record for record in records if record["record"] == "kill"]
    rounds = [record for record in records if record["record"] == "round"]
    sums = [
        sum(kill.get(key, 0) for kill in kills)
        for key in ("lost", "unloadable", "counted_twice", "rows_unlike", "left_behind")
    ]
    unlike = sum(bool(one["rows_unlike"] or one["state_unlike"] or one["counted_twice"]) for one in rounds)
    return f"| {name} | {len(kills)} | {len(rounds)} | {' | '.join(map(str, sums))} | {unlike} |"


def case_line(kind: str, records: Sequence[Record]) -> str:
    kinds = Counter(kind_of(record) for record in records)
    cases = len({record["case"] for record in records})
    columns = [kinds[name] for name in (0, 2, "traceback", "hang", "outside", "other")]
    return f"| {kind} | {cases:,} | {len(records):,} | {' | '.join(f'{number:,}' for number in columns)} |"


def kind_of(record: Record) -> Any:
    """The column of a command."""
    problem = record.get("problem")
    if not problem:
        return record["code"]
    if problem == "hang":
        return "hang"
    if problem.startswith("wrote outside"):
        return "outside"
    return "traceback" if "Traceback" in problem else "other"
