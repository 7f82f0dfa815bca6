"""What keeps the code readable: import direction, documented settings, named metrics."""

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar, get_origin, get_type_hints

import pytest
from toy_runs import changed, toy_config, train

import anybatch
from anybatch import config as config_package
from anybatch.cli.help_page import documented
from anybatch.config import CONFIGS
from anybatch.runs import log
from anybatch.runs import metrics as metric_names

PACKAGE = Path(anybatch.__file__).parent
REPOSITORY = PACKAGE.parents[1]
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Those of PPG's auxiliary phase, of PQN, of controllers, of the display, and the score of some games only.
NOT_OF_PPO = (
    "auxiliary/",
    "time/auxiliary",
    "charts/normalized_return",
    "charts/recent_return",
    "charts/epsilon",
    "losses/td_loss",
    "losses/q_values",
    "batch/behavioral_divergence",
    "batch/policy_kl",
)


def imported_by(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where things are"
            found.add(node.module or "")
    return found


def test_equations_import_torch_only():
    for path in (PACKAGE / "equations").glob("*.py"):
        for module in imported_by(path):
            top = module.partition(".")[0]
            ours = module.startswith("anybatch.equations")
            assert ours or top == "torch" or top in sys.stdlib_module_names, f"{path.name} imports {module}"


@pytest.mark.parametrize(
    ("library", "only"),
    [
        ("envpool", "envs/envpool_adapter.py"),
        ("tyro", "cli/"),
        ("wandb", "runs/sinks.py"),
        ("safetensors", "runs/"),
        ("gymnasium", "envs/"),
    ],
)
def test_a_library_is_imported_in_one_place(library: str, only: str):
    places = {
        str(path.relative_to(PACKAGE))
        for path in SOURCES
        if any(module.partition(".")[0] == library for module in imported_by(path))
    }
    assert places and all(place.startswith(only) for place in places), places


def test_imports_point_one_way():
    """The contracts of pyproject.toml."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_importing_the_package_loads_no_heavy_library():
    code = "import sys, anybatch, anybatch.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "anybatch.cli.main" in loaded
    assert not loaded & {"torch", "numpy", "envpool", "gymnasium", "tyro", "rich", "tensorboard"}


def config_classes() -> list[type]:
    """The configs of all algorithms and every group in them."""
    found: dict[type, None] = {}
    waiting: list[type] = list(CONFIGS.values())
    while waiting:
        kind = waiting.pop()
        found[kind] = None
        waiting += [
            hint
            for hint in get_type_hints(kind).values()
            if dataclasses.is_dataclass(hint) and hint not in found
        ]
    return list(found)


def is_group(hint: object) -> bool:
    return dataclasses.is_dataclass(hint) or get_origin(hint) is ClassVar


@pytest.mark.parametrize("kind", config_classes(), ids=lambda kind: kind.__name__)
def test_every_setting_says_what_it_means(kind: type):
    settings = {name for name, hint in get_type_hints(kind).items() if not is_group(hint)}
    assert settings and not settings - documented(kind).keys()
    assert inspect.getdoc(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_every_setting_is_read_somewhere():
    config_files = {Path(inspect.getfile(kind)) for kind in config_classes()}
    config_files.add(Path(config_package.__file__))
    read: set[str] = set()
    for path in SOURCES:
        if path not in config_files:
            tree = ast.parse(path.read_text())
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for kind in config_classes():
        unread = {field.name for field in dataclasses.fields(kind)} - read
        assert not unread, f"{kind.__name__}: nothing reads {', '.join(sorted(unread))}"


def test_metrics_of_a_run_are_named_and_named_metrics_are_produced(tmp_path: Path):
    config = toy_config(
        total_env_steps=300,
        proximal={"policy": "ewma"},
        update={"noise_scale_every": 1},
        optimizer={"max_grad_norm": 0.5},
        evaluation={"every_env_steps": 100},
    )
    rows = log.read(train(config, tmp_path).folder)
    produced = {name for row in rows for name, value in row.items() if value is not None}
    produced -= {"env_steps", "wall_seconds"}
    assert produced <= metric_names.METRICS.keys()
    missing = metric_names.METRICS.keys() - produced
    assert not [name for name in missing if not name.startswith(NOT_OF_PPO)]
    plain = log.read(train(changed(config, proximal={"policy": "behavior"}), tmp_path).folder)
    absent = {"proximal/age_env_steps", "proximal/age_gradient_steps"}
    assert absent == produced - {name for row in plain for name in row}


def test_what_every_metric_means_is_a_sentence():
    for name, meaning in metric_names.METRICS.items():
        assert re.fullmatch(r"[a-z]+/[a-zA-Z_]+", name)
        assert (meaning[0].isupper() or meaning[0] in "1(") and meaning.endswith(".") and len(meaning) > 15


def test_no_module_is_named_after_nothing():
    vague = {"utils", "util", "common", "misc", "helpers", "helper", "base", "core"}
    assert not [path for path in SOURCES if vague & {path.stem, *path.relative_to(PACKAGE).parts}]


def test_nothing_is_called_old():
    for path in SOURCES:
        names = {
            name
            for node in ast.walk(ast.parse(path.read_text()))
            for name in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "name", None))
            if isinstance(name, str)
        }
        assert not [name for name in names if re.search(r"(^|_)old(_|$)", name)], path


def test_functions_fit_on_a_screen():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                docstring = ast.get_docstring(node) or ""
                lines = node.end_lineno - node.lineno + 1 - len(docstring.splitlines())
                assert lines <= 60, f"{path.relative_to(PACKAGE)}: {node.name} has {lines} lines"
                assert len(docstring.splitlines()) <= 15, f"{path.relative_to(PACKAGE)}: {node.name}"
