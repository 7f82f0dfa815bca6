"""Runs of every algorithm still have the numbers that were recorded."""

import json
from pathlib import Path

import pytest
from traces import CASES, TRACES, trace

RECORDED = json.loads(TRACES.read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_run_has_the_recorded_metrics_and_weights(name: str, tmp_path: Path):
    found, recorded = trace(name, tmp_path), RECORDED[name]
    assert len(found["weights"]) == len(recorded["weights"]) > 12
    for here, there in zip(found["weights"], recorded["weights"], strict=True):
        assert here == pytest.approx(there, rel=1e-9, abs=1e-9)
    for here, there in zip(found["rows"], recorded["rows"], strict=True):
        assert measured(here).keys() == measured(there).keys()
        for metric, value in measured(here).items():
            assert value == pytest.approx(there[metric], rel=tolerance(metric), abs=1e-9), metric


def measured(row: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in row.items() if value is not None}


def tolerance(metric: str) -> float:
    """A noise scale is a quotient of small differences, which magnifies how processors differ in rounding."""
    return 1e-7 if "noise_scale" in metric else 1e-9


def test_every_trace_is_tested():
    assert RECORDED.keys() == CASES.keys()
