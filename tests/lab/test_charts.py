"""Axes, colors and picture files, whatever they show."""

import csv
import io
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from anybatch.lab.charts import matplotlib_figures, palette
from anybatch.lab.charts.axes import axis_over, written
from anybatch.lab.charts.chart import Chart, Panels, Series, csv_text

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False).filter(lambda value: value == 0 or abs(value) > 1e-12)


def chart(**changes: object) -> Chart:
    line = Series(label="one", color="blue", x=(0, 50, 100), y=(1, 3, 2), low=(0, 2, 1), high=(2, 4, 3))
    other = Series(label="other", color="orange", x=(0, 100), y=(2, 2), dashed=True)
    settings: dict[str, object] = {
        "name": "demo",
        "title": "Demo",
        "y_label": "score",
        "series": (line, other),
    }
    return Chart(**(settings | changes))  # type: ignore[arg-type]


@given(st.lists(NUMBERS, min_size=1), st.booleans())
def test_a_linear_axis_holds_all_values_and_its_ticks(values: list[float], rounded: bool):
    axis = axis_over(values, "linear", rounded=rounded)
    room = 1e-9 * (axis.high - axis.low)
    assert axis.low - room <= min(values) and max(values) <= axis.high + room
    assert all(axis.low - room <= tick <= axis.high + room for tick in axis.ticks)
    assert 2 <= len(axis.ticks) <= 8
    assert all(-1e-6 <= axis.place(value) <= 1 + 1e-6 for value in values)


@given(st.lists(st.floats(1e-9, 1e9), min_size=1))
def test_a_logarithmic_axis_holds_all_values_and_its_ticks(values: list[float]):
    axis = axis_over([*values, 0.0, -1.0], "log", rounded=True)  # those it cannot show do not count
    assert all(0 <= axis.place(value) <= 1 for value in values)
    assert all(0 <= axis.place(tick) <= 1 for tick in axis.ticks) and 1 <= len(axis.ticks) <= 6
    assert len(set(axis.labels)) == len(axis.labels)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_two_ticks_are_never_written_alike(low: float, span: float):
    axis = axis_over([low, low + span], "linear", rounded=True)
    assert len(set(axis.labels)) == len(axis.labels)


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (0.0, 1.0, "0"),
        (50_000, 10_000, "50k"),
        (1_500_000, 500_000, "1.5M"),
        (2_500, 500, "2500"),
        (0.25, 0.05, "0.25"),
        (-20, 10, "−20"),
        (0.0005, 0.0005, "0.0005"),
        (2e-5, 1e-5, "2×10⁻⁵"),
        (1e-5, 1e-5, "10⁻⁵"),
    ],
)
def test_how_a_tick_is_written(value: float, step: float, text: str):
    assert written(value, step) == text


# Machado, Oliveira, Fernandes (2009), severity 1.0, on linear RGB.
DEFICIENCIES = {
    "none": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}
RGB_TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
WHITE = (0.9505, 1.0, 1.089)
PAGES = {"light": "#fbfbfa", "dark": "#101318"}


def linear(color: str) -> np.ndarray:
    channels = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array(RGB_TO_XYZ) @ np.clip(rgb, 0, 1) / np.array(WHITE)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(color: str, page: str) -> float:
    darker, lighter = sorted(float(np.array(RGB_TO_XYZ[1]) @ linear(one)) for one in (color, page))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_reader_can_tell_the_colors_apart(deficiency: str, dark: bool):
    seen = [
        lab(np.array(DEFICIENCIES[deficiency]) @ linear(palette.PALETTE[name][dark]))
        for name in palette.DISTINCT
    ]
    assert min(math.dist(one, other) for one, other in itertools.combinations(seen, 2)) > 20


@pytest.mark.parametrize("name", palette.DISTINCT)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_lines_stand_out_from_the_page(name: str, dark: bool):
    assert contrast(palette.PALETTE[name][dark], PAGES["dark" if dark else "light"]) >= 2.9


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_ordered_colors_become_darker_or_lighter_all_along(dark: bool):
    lightness = [lab(linear(palette.PALETTE[name][dark]))[0] for name in palette.ORDERED]
    assert lightness == sorted(lightness, reverse=True)


def test_the_page_has_the_colors_of_its_palette():
    assert "--blue:#1553c4;" in palette.custom_properties(dark=False)
    assert "--blue:#3e8ff7;" in palette.custom_properties(dark=True)


def test_numbers_of_a_chart_as_csv():
    rows = list(csv.reader(io.StringIO(csv_text(chart()))))
    assert rows[0] == ["series", "env steps", "score", "low", "high"]
    assert rows[2] == ["one", "50", "3", "2", "4"] and rows[4] == ["other", "0", "2", "", ""]


def colors_in(content: bytes) -> set[tuple[int, ...]]:
    image = Image.open(io.BytesIO(content)).convert("RGB")
    return {color for _, color in image.getcolors(1 << 24) or []}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_long_names_in_a_legend_stay_inside_the_picture(count: int):
    names = [
        "minibatch and learning rate kept, more minibatches instead of larger ones",
        "all rules",
        "none of them",
    ]
    lines = tuple(
        Series(label=name, color=color, x=(1, 64), y=(0, 1))
        for color, name in zip(palette.PALETTE, names, strict=False)
    )
    charts = tuple(
        Chart(name=f"chart-{place}", title="Score", x_label="batch", y_label="score", series=lines)
        for place in range(count)
    )
    figure = matplotlib_figures.figure_of(Panels(name="panels", title="Score", charts=charts))
    FigureCanvasAgg(figure).draw()
    inside, legend = figure.bbox, figure.legends[0].get_window_extent()
    assert legend.x0 >= inside.x0 and legend.x1 <= inside.x1
    assert legend.y0 >= inside.y0 and legend.y1 <= figure.axes[-1].get_tightbbox().y0


def test_a_picture_shows_every_line_in_its_color():
    for drawn in (chart(), chart(y_scale="log", x_includes=(0,)), chart(level=2.5, level_label="reference")):
        colors = colors_in(matplotlib_figures.picture(drawn, ".png"))
        for name in ("blue", "orange"):
            rgb = tuple(int(palette.PALETTE[name][0][place : place + 2], 16) for place in (1, 3, 5))
            assert rgb in colors


def test_the_same_picture_is_the_same_file():
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        content = matplotlib_figures.picture(chart(), suffix)
        assert content.startswith(start) and content == matplotlib_figures.picture(chart(), suffix)
