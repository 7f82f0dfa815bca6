"""The dial in a real browser: the numbers of `anybatch plan`, for a mouse and for a keyboard."""

import json
import random
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import browser
import made_studies
import pytest
from test_pages import BACKGROUND, COVERED_LABELS, OVERFLOWING, WIDTHS

from anybatch import presets
from anybatch.cli import main
from anybatch.cli.flags import PlanFlags
from anybatch.cli.parser import Argv
from anybatch.cli.run_flags import with_preset
from anybatch.config import DEFAULT_RESCALE_RULES, AnyConfig
from anybatch.config.planned import PlanRow
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.dial import BatchControl, plan_table
from anybatch.errors import ConfigError
from anybatch.lab.pages.dial import dial_page
from anybatch.lab.pages.dial_data import LINES, ROWS, records_of, settings_of
from anybatch.lab.pages.study_parts import StudyView
from anybatch.lab.studies import files
from anybatch.lab.studies.plan import Request, make_plan

COMMITTED = Path(__file__).parents[2] / "docs" / "dial.html"
PLANS = 1000
PLANNED = """(settings) => {
  try {
    const plan = planOf(settings);
    const [rows, lines, notes] = [rowsOf, linesOf, notesOf].map((part) => part(settings, plan));
    for (const row of rows) row.ofMeaning = row.meaning && [row.tuned, row.here].map(row.meaning);
    return { plan, rows, lines, notes: notes.map(({ name }) => name) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { refusal: fill(words.refusals[error.name], error.values) };
  }
}"""
NOTES = {
    "larger-minibatch": "times the tuned one: in our studies",
    "max-grad-norm": "clips gradients",
    "proximal-age": "the age of the proximal policy in env steps follows",
    "epochs": "The rule assumes one policy epoch",
    "num-steps": "how far returns look before they bootstrap",
    "anneal-until": "The learning rate reaches 0",
    "advantage-normalization": "in a way that no rule corrects",
    "target-kl": "ends iterations early",
    "young-average": "The proximal EWMA's center of mass is",
    "young-copy": "The proximal copy is",
    "one-sample": "An iteration of one sample",
    "phase-length": "A phase would be",
}
"""What Python says where the page has a note."""
SHOWN_ROWS = """[...document.querySelectorAll("#numbers tr")].map((row) =>
  [...row.children].map((cell) => (cell.querySelector("div > span:first-child") ?? cell).textContent))"""
PRODUCTS = {"iteration_batch", "minibatch", "gradient_steps_per_iteration", "env_steps_per_gradient_step"}
"""Of a batch; the page keeps all of them with every batch, also where `to_json` leaves them out."""
OUTLINE = """(({ outlineStyle, outlineWidth }) => [outlineStyle, outlineWidth])(
  getComputedStyle(document.activeElement))"""
CHECKED = "[...document.querySelectorAll('#rules label:not([hidden]) input:checked')]"
CURVES = """[...document.querySelectorAll('.record')].flatMap((group) => [...group.children]
  .filter((one) => !one.hidden)
  .map((one) => [Number(one.dataset.ratio), one.querySelectorAll('path.line').length]))"""
VIRTUAL_KEYS = {"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, " ": 32}


@cache
def preset_config(name: str) -> AnyConfig:
    return presets.load(name).config


def dial_presets() -> dict[str, presets.Preset]:
    """As `anybatch dial` has them: the default first."""
    return {name: presets.load(name) for name in dict.fromkeys((presets.DEFAULT, *presets.names()))}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    with browser.opened(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dial with curves of two environments at several batches."""
    asked = Request(study="invariance", scale="cpu", seeds=2, envs=("minatar:Asterix", "minatar:Breakout"))
    plan = make_plan(files.load("invariance"), asked)
    view = StudyView(plan, [made_studies.result_of(plan, cell) for cell in plan.cells])
    path = tmp_path_factory.mktemp("dial") / "dial.html"
    path.write_text(dial_page(dial_presets(), {"results/studies/made": records_of(view)}))
    return path


@pytest.fixture(scope="module")
def opened(chromium: browser.Browser, page: Path) -> browser.Browser:
    chromium.open(page, width=1400)
    return chromium


@pytest.fixture
def dial(opened: browser.Browser) -> browser.Browser:
    """The page as it opens: the first preset, unchanged."""
    opened.complaints.clear()
    opened.evaluate("choose(presets[0].name)")
    return opened


# The arithmetic


def whole(rng: random.Random, largest: int) -> int:
    """Small and large numbers equally often."""
    return round(largest ** rng.random())


def random_changes(rng: random.Random, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as a user may change them, some of which cannot be planned."""
    optimizer = rng.choice(("adam", "radam", "sgd"))
    forms = rng.choice(("", "", ",learning-rate=linear", ",learning-rate=square-root"))
    some = rng.sample((*DEFAULT_RESCALE_RULES, "adam-betas"), rng.randint(1, 6))
    drawn: dict[str, Any] = {
        "num-envs": whole(rng, 4096),
        "num-steps": whole(rng, 2048),
        "rescale": rng.choice(("all", "none", "all" + forms, ",".join(some), ",".join(some) + forms)),
        "minibatch": rng.choice(("auto", "scaled", "keep", "noise-scale", whole(rng, 100_000))),
        "update.minibatches-per-epoch": whole(rng, 64),
        "update.epochs": whole(rng, 10),
        "optimizer.name": optimizer,
        "optimizer.learning-rate": 10 ** rng.uniform(-7, 0),
        "optimizer.beta1": rng.uniform(0, 0.99),
        "optimizer.beta2": 1 - 10 ** rng.uniform(-6, -1),
        "optimizer.max-grad-norm": rng.choice((None, 0.5)),
        "tuned-at.num-envs": whole(rng, 4096),
        "tuned-at.num-steps": whole(rng, 2048),
        "tuned-at.minibatches-per-epoch": whole(rng, 64),
        "tuned-at.epochs": whole(rng, 10),
        "proximal.policy": rng.choice(("behavior", "iteration_start", "ewma", "periodic")),
        "proximal.ewma-decay": 1 - 10 ** rng.uniform(-4, 0),
        "proximal.copy-every": whole(rng, 1000),
        "objective.advantage-normalization": "iteration",
        "objective.advantage-decay": rng.choice((0.0, 1 - 10 ** rng.uniform(-4, 0))),
        "phase.policy-iterations": whole(rng, 64),
        "phase.auxiliary-minibatch": whole(rng, 16_384),
        "phase.auxiliary-learning-rate": 10 ** rng.uniform(-6, -1),
    }
    kept = {"num-steps", "tuned-at.num-steps"} if settings["controller.kind"] != "fixed" else set()
    known = [name for name in drawn if name in settings and name not in kept]
    return {name: drawn[name] for name in rng.sample(known, rng.randint(1, len(known)))}


def changed_config(config: AnyConfig, changes: dict[str, Any]) -> AnyConfig:
    settings: dict[str, Any] = {}
    for flag, value in changes.items():
        *groups, name = flag.replace("-", "_").split(".")
        table = settings
        for group in groups:
            table = table.setdefault(group, {})
        table[name] = "none" if value is None else value
    return config_from_dict(type(config), presets.overlaid(config_to_dict(config), settings))


def planned(config: AnyConfig) -> dict[str, Any]:
    """What `anybatch plan` computes and says."""
    plan = BatchControl(config, encoder="mlp").plan
    table = plan_table(config, plan)
    return {"plan": plan.to_json(), "lines": table.lines, "rows": table.rows, "warnings": table.warnings}


def numbers_in(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?", text)]


DIVIDED = (
    "proximal EWMA decay",
    "proximal copy every, gradient steps",
    "advantage-statistics EWMA decay",
    "iterations per phase",
)
"""What is divided by the ratio; Python writes ÷ 1/8 as × 8."""


def ratio_in(row: PlanRow) -> float:
    """The ratio in the rule of a row of Python's table, which may be a fraction."""
    first, *rest = numbers_in(row.rule)
    if "1/" in row.rule:
        return first / rest[0]
    return 1 / first if row.number in DIVIDED and "×" in row.rule else first


def assert_same_rows(found: list[dict[str, Any]], expected: Sequence[PlanRow]) -> None:
    """The same numbers follow the same rules, written as they are: tuned, here, and what they mean."""
    rows = [row for row in found if row["name"] != "adam-beta2"]  # Python has both in one row
    labels = [ROWS[row["name"]]["number"].replace("Adam β₁", "Adam β₁, β₂") for row in rows]
    assert labels == [row.number for row in expected]
    for row, other in zip(rows, expected, strict=True):
        for place, text in enumerate((other.tuned_at, other.this_run)):
            value, *_ = numbers_in(text)
            assert row[("tuned", "here")[place]] == pytest.approx(value, rel=1e-5), row
            if row.get("ofMeaning"):
                assert other.meaning is not None
                (meaning,) = numbers_in((other.meaning.tuned_at, other.meaning.this_run)[place])
                assert row["ofMeaning"][place] == pytest.approx(meaning, rel=1e-3), row
        states = {"kept": "kept", "minibatch limit": "limit"}
        assert row["state"] in ("batch", states.get(other.regime, "follows"))
        if row["state"] == "follows" or row["name"] == "minibatches-limited":
            (number,) = row["numbers"].values()
            assert number == pytest.approx(ratio_in(other), rel=1e-3), (row, other.rule)


def assert_same_lines(found: list[dict[str, Any]], expected: Sequence[str]) -> None:
    """Every number of a line of the page is in the line that Python has."""
    theirs = {line.split("  ")[0]: line for line in expected}
    mine = [line for line in found if line["name"] != "limit-measured"]
    assert {LINES[line["name"]][0] for line in mine} == theirs.keys() & {
        "minibatch limit",
        "minibatch kept",
        "controller",
        "phase",
    }
    for line in mine:
        text = theirs[LINES[line["name"]][0]]
        known = [*numbers_in(text), *(1 / number for number in numbers_in(" ".join(text.split("1/")[1:])))]
        for number in line["numbers"].values():
            assert any(number == pytest.approx(one, rel=1e-3, abs=0.5) for one in known), (line, known)


def assert_equal_numbers(found: Any, expected: Any, path: str = "plan") -> None:
    """All that the page computes is what Python computes: whole numbers exactly, others to rounding."""
    if isinstance(found, dict) and isinstance(expected, dict):
        assert not found.keys() - expected.keys() - PRODUCTS, path
        for name in found.keys() & expected.keys():
            assert_equal_numbers(found[name], expected[name], f"{path}.{name}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-12, abs=0), path
    else:
        assert found == (list(expected) if isinstance(expected, tuple) else expected), path


def test_the_page_plans_as_python_does(dial: browser.Browser):
    """A thousand plans, and all that is refused among them: numbers, rows, lines and notes."""
    rng = random.Random(20211)
    asked: list[dict[str, Any]] = []
    expected: list[dict[str, Any]] = []
    accepted = 0
    while accepted < PLANS:
        config = preset_config(rng.choice(presets.names()))
        settings = settings_of(config)
        changes = random_changes(rng, settings)
        asked.append(settings | changes)
        try:
            other = changed_config(config, changes)
            expected.append(planned(other))
            assert settings_of(other) == asked[-1]
            accepted += 1
        except ConfigError as error:
            expected.append({"refusal": str(error)})
    answer = dial.evaluate(f"JSON.stringify({json.dumps(asked)}.map({PLANNED}))")
    refusals, noted = 0, set[str]()
    for settings, found, wanted in zip(asked, json.loads(answer), expected, strict=True):
        shown = json.dumps(settings)
        assert ("refusal" in found) == ("refusal" in wanted), (shown, found, wanted)
        if "refusal" in wanted:
            refusals += 1
            assert "undefined" not in found["refusal"] and "{" not in found["refusal"]
            continue
        assert_equal_numbers(found["plan"], wanted["plan"])
        assert_same_rows(found["rows"], wanted["rows"])
        assert_same_lines(found["lines"], wanted["lines"])
        assert len(found["notes"]) == len(wanted["warnings"]), shown
        assert all(NOTES[name] in said for name, said in zip(found["notes"], wanted["warnings"], strict=True))
        noted |= set(found["notes"])
    assert refusals > 50 and len(noted) >= 6


def test_numbers_have_six_digits_or_all_of_a_whole_number(dial: browser.Browser):
    written = {
        2.5e-4: "0.00025",
        8 / 9: "0.888889",
        1e-7: "0.0000001",
        2097152: "2,097,152",
        1234.5678: "1,234.57",
    }
    assert dial.evaluate(f"{list(written)}.map(numberText)") == list(written.values())


# The page as it is used


def test_every_preset_opens_with_the_table_of_its_plan(dial: browser.Browser):
    for name in presets.names():
        dial.evaluate(f"choose({name!r})")
        rows = [row for row in dial.evaluate(SHOWN_ROWS) if row[0] != "Adam β₂"]
        expected = planned(preset_config(name))["rows"]
        assert [number for number, *_ in rows] == [row.number for row in expected]
        for shown, row in zip(rows, expected, strict=True):
            assert numbers_in(shown[2])[0] == pytest.approx(numbers_in(row.this_run)[0], rel=1e-5)
            assert not re.search("undefined|NaN|[{}]", "".join(shown))
        assert dial.evaluate("byId('command').textContent") == f"anybatch train --preset {name}"


CHANGES = {
    "cartpole-ppo-ewma": {"num-envs": 128, "update.epochs": 1, "rescale": "all,adam-betas"},
    "procgen-ppg-ewma": {"num-envs": 24, "minibatch": "keep", "phase.auxiliary-learning-rate": 1e-7},
    "atari-pqn-abs": {"num-envs": 32, "optimizer.learning-rate": 0.001},
    "minatar-pqn": {"num-envs": 1024, "minibatch": 512, "rescale": "learning-rate=linear"},
    "mujoco-ppo": {"num-envs": 8, "num-steps": 512, "minibatch": "noise-scale", "tuned-at.epochs": 5},
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_command_line_has_the_numbers_of_the_page(dial: browser.Browser, name: str):
    dial.evaluate(f"choose({name!r}, {json.dumps(CHANGES[name])})")
    words = shlex.split(dial.evaluate("byId('command').textContent"))
    assert words[:2] == ["anybatch", "train"]
    flags = with_preset(PlanFlags, Argv(words[2:]))
    assert settings_of(flags.config) == json.loads(dial.evaluate("JSON.stringify(settingsOf())"))


@pytest.mark.parametrize("name", CHANGES)
def test_the_address_leads_back_to_the_same_numbers(dial: browser.Browser, page: Path, name: str):
    dial.evaluate(f"choose({name!r}, {json.dumps(CHANGES[name])})")
    address, shown = dial.evaluate("location.hash"), dial.evaluate(SHOWN_ROWS)
    dial.evaluate("choose(presets[3].name)")
    assert dial.evaluate("location.hash") != address
    dial.call("Page.navigate", url=page.resolve().as_uri() + address)
    assert dial.evaluate("location.hash") == address
    assert dial.evaluate(SHOWN_ROWS) == shown


def test_the_page_opens_where_the_numbers_change(dial: browser.Browser):
    dial.evaluate("location.hash = ''")
    dial.evaluate("readAddress()")
    assert dial.evaluate("[state.preset.name, state.changes]") == ["minatar-ppo-ewma", {"num-envs": 4}]
    assert dial.evaluate("document.querySelectorAll('#numbers strong').length") > 2


def test_an_address_that_means_nothing_opens_the_first_preset(dial: browser.Browser, page: Path):
    dial.call("Page.navigate", url=page.resolve().as_uri() + "#preset=none-such&num-envs=%3Cb%3E&color=red")
    assert dial.evaluate("state.preset.name") == presets.DEFAULT
    assert dial.evaluate("byId('refusal').textContent") == (
        "num-envs = NaN: must be a whole number of at least 1."
    )
    assert dial.complaints == []


def press(dial: browser.Browser, key: str) -> None:
    code = VIRTUAL_KEYS[key]
    text = {"text": key} if key == " " else {}
    dial.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
    dial.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)


def tab_to(dial: browser.Browser, name: str) -> None:
    for _ in range(60):
        press(dial, "Tab")
        if dial.evaluate("document.activeElement.id") == name:
            return
    raise AssertionError(f"{name} cannot be reached with the Tab key")


def test_the_keyboard_moves_the_batch(dial: browser.Browser, page: Path):
    dial.open(page, width=1400)
    tab_to(dial, "envs-slider")
    assert dial.evaluate(OUTLINE) == ["solid", "3px"]
    before = dial.evaluate(SHOWN_ROWS)
    seen = [dial.evaluate("settingsOf()['num-envs']")]
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        press(dial, key)
        seen.append(dial.evaluate("settingsOf()['num-envs']"))
        assert dial.evaluate("document.activeElement.ariaValueText") == f"environments: {seen[-1]}"
    assert seen == [4, 5, 6, 5, 4, 3]  # it opens at a sixteenth of 64
    assert dial.evaluate(SHOWN_ROWS) != before
    summary = dial.evaluate("byId('summary').textContent")
    assert summary.startswith("Environments: 3, ") and "Learning rate: " in summary


def test_the_keyboard_turns_a_rule_off(dial: browser.Browser, page: Path):
    dial.open(page, width=1400)
    dial.evaluate("change('num-envs', 4)")
    tab_to(dial, "rule-learning-rate")
    press(dial, " ")
    assert dial.evaluate("settingsOf().rescale") == "proximal-ewma,advantage-moments"
    name, tuned, here, rule = dial.evaluate(SHOWN_ROWS)[0]
    assert name == "learning rate" and tuned == here and rule == "kept: its rule is turned off"
    press(dial, " ")
    assert dial.evaluate("settingsOf().rescale") == "all"


def test_all_boxes_off_is_rescale_none(dial: browser.Browser):
    dial.evaluate(f"{CHECKED}.forEach((box) => box.click())")
    assert dial.evaluate("settingsOf().rescale") == "none"
    dial.evaluate("choose('cartpole-ppo-ewma', {rescale: 'all,learning-rate=linear'})")
    assert dial.evaluate("byId('learning-rate-form').value") == "linear"
    dial.evaluate("byId('rule-adam-betas').click()")
    assert dial.evaluate("settingsOf().rescale") == "all,adam-betas,learning-rate=linear"


def test_a_number_that_cannot_be_is_refused_in_a_sentence(dial: browser.Browser):
    dial.evaluate("change('optimizer.learning-rate', -1)")
    assert dial.evaluate("byId('refusal').textContent") == ("optimizer.learning-rate = -1: must be positive.")
    assert dial.evaluate("[byId('refusal').hidden, byId('results').hidden]") == [False, True]
    assert dial.evaluate("byId('summary').textContent") == ""
    dial.evaluate("change('optimizer.learning-rate', 0.001)")
    assert dial.evaluate("[byId('refusal').hidden, byId('results').hidden]") == [True, False]


def test_every_control_and_the_table_have_names(dial: browser.Browser):
    dial.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    nodes = [node for node in dial.call("Accessibility.getFullAXTree")["nodes"] if "role" in node]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]
    kinds = {"slider", "spinbutton", "combobox", "checkbox", "button", "table"}
    controls = [(role, name) for role, name in named if role in kinds]
    assert not [role for role, name in controls if not name]
    assert ("slider", "Environments, over all ranks") in controls
    assert ("table", "The batches and the numbers that follow them: as tuned, and in this run") in controls
    assert {"rowheader", "columnheader", "status"} <= {role for role, _ in named}
    assert len(controls) >= 20


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_whole_at_every_width(chromium: browser.Browser, page: Path, width: int, dark: bool):
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.open(page, width=width, dark=dark)
    assert chromium.evaluate(BACKGROUND) == ("rgb(16, 19, 24)" if dark else "rgb(251, 251, 250)")
    chromium.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    states = [("cartpole-ppo-ewma", {}), *CHANGES.items(), ("minatar-pqn", {"num-envs": 1_048_576})]
    states += [("minatar-pqn", {"update.minibatches-per-epoch": 999_999_999})]
    for name, changes in states:
        chromium.evaluate(f"choose({name!r}, {json.dumps(changes)})")
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width
        assert chromium.evaluate(OVERFLOWING) == [], name
        assert chromium.evaluate(COVERED_LABELS) == 0
    assert chromium.complaints == []
    assert chromium.requests == [page.resolve().as_uri()]


def test_the_curves_are_those_of_the_nearest_batch(dial: browser.Browser):
    """At the batch tuned at there is one line; elsewhere the base is beside the arms that were run there."""
    expected = {8: [[1, 1]] * 2, 6: [[1, 1]] * 2, 2: [[1 / 4, 3]] * 2, 512: [[4, 2]] * 2}
    for envs, curves in expected.items():
        dial.evaluate(f"choose('cartpole-ppo-ewma', {{'num-envs': {envs}}})")
        assert dial.evaluate(CURVES) == curves
    dial.evaluate("choose('minatar-pqn', {'num-envs': 1})")
    assert dial.evaluate(CURVES) == [[1 / 8, 3]] * 2
    assert "From results/studies/made." in dial.evaluate("byId('records').innerText")
    assert "1/128 of the tuned batch" in dial.evaluate("byId('nearest').textContent")


# The command, and the page that is committed


def without_records(content: str) -> str:
    return re.sub(r'<section id="records">.*?</section>', "", content, flags=re.S)


def test_the_committed_page_is_that_of_the_current_presets():
    """After a change of presets or of the page: make dial."""
    assert without_records(COMMITTED.read_text()) == dial_page(dial_presets())


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    own = tmp_path / "my tuned.toml"
    own.write_text('extends = "cartpole-ppo-ewma"\ndescription = "mine"\nsource = "my </script> runs"\n')
    out = tmp_path / "pages" / "dial.html"
    main(["dial", "--preset", str(own), "--out", str(out)])
    assert capsys.readouterr().out == f"page     {out}\n"
    assert "</script> runs" not in out.read_text() and 'id="records"' not in out.read_text()
    main(["dial", "--out", str(out)])
    assert out.read_text() == dial_page(dial_presets())


@pytest.mark.parametrize(
    "words, said",
    [(["nowhere"], "is not a recorded study"), (["--preset", "none-such"], "there is no preset")],
)
def test_the_command_refuses_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
):
    with pytest.raises(SystemExit) as ending:
        main(["dial", *words, "--out", str(tmp_path / "dial.html")])
    assert ending.value.code == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "dial.html").exists()


def test_the_command_replaces_no_page_of_someone_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = tmp_path / "index.html"
    other.write_text("my own page")
    with pytest.raises(SystemExit):
        main(["dial", "--out", str(other)])
    assert other.read_text() == "my own page" and "would be lost" in capsys.readouterr().err
