"""Runs of every algorithm still have the numbers that were recorded."""

import json
from pathlib import Path

import pytest
from traces import CASES, TRACES, trace

RECORDED = json.loads(TRACES.read_text())
NOISE_SCALE = ("batch/noise_scale", "noise/")
"""A quotient of small differences, in which another processor's rounding is seen first."""


@pytest.mark.parametrize("compiled", ["auto", "off"])
@pytest.mark.parametrize("name", CASES)
def test_a_run_has_the_recorded_metrics_and_weights_on_both_backends(
    name: str, compiled: str, tmp_path: Path
):
    found, recorded = trace(name, tmp_path, compiled), RECORDED[name]
    assert len(found["weights"]) == len(recorded["weights"]) > 12
    for here, there in zip(found["weights"], recorded["weights"], strict=True):
        assert here == pytest.approx(there, rel=1e-9, abs=1e-9)
    for here, there in zip(found["rows"], recorded["rows"], strict=True):
        assert measured(here) == pytest.approx(measured(there), rel=1e-9, abs=1e-9)
        assert noise_scales(here) == pytest.approx(noise_scales(there), rel=1e-6)


def measured(row: dict[str, float | None]) -> dict[str, float]:
    return {
        name: value for name, value in row.items() if value is not None and not name.startswith(NOISE_SCALE)
    }


def noise_scales(row: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in row.items() if value is not None and name.startswith(NOISE_SCALE)}


def test_every_trace_is_tested():
    assert RECORDED.keys() == CASES.keys()
