"""The soak in small: kills, fuzzed command lines and damaged folders, of which results/soak has hundreds."""

from pathlib import Path
from typing import Any

import pytest
import soak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize(("kind", "count"), [("plans", 300), ("trainings", 20), ("folders", 20)])
def test_every_command_ends_well_or_with_one_sentence(kind: str, count: int, tmp_path: Path):
    records = soaked(kind, count, tmp_path)
    assert len({record["case"] for record in records}) == count
    assert not [record for record in records if record["bad"]]


def test_kills_lose_nothing_and_count_nothing_twice(tmp_path: Path):
    records = soaked("kills", 28, tmp_path)
    assert sum(record["record"] == "kill" for record in records) >= 28
    for name in ("lost", "unloadable", "counted_twice", "rows_unlike", "state_unlike", "left_behind"):
        assert not [record for record in records if record.get(name)], name


def soaked(kind: str, count: int, folder: Path) -> list[dict[str, Any]]:
    work = folder / "work"
    work.mkdir()
    return soak.soak(kind, count, folder / "records", work, seed=2)
