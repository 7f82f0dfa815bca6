"""What keeps the code readable: settings that are documented and read, named metrics, short functions.

Which module may import which is in the contracts of pyproject.toml, which `make check` holds.
"""

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import pytest
from toy_runs import changed, toy_config, train

import anybatch
from anybatch.cli.parser import documented
from anybatch.config import CONFIGS
from anybatch.runs import log
from anybatch.runs import metrics as metric_names

PACKAGE = Path(anybatch.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Those of PPG's auxiliary phase, of PQN, of controllers, of the display, and the score of some games only.
NOT_OF_PPO = (
    "actors/",
    "auxiliary/",
    "time/auxiliary",
    "charts/normalized_return",
    "charts/recent_return",
    "charts/epsilon",
    "losses/td_loss",
    "losses/q_values",
    "batch/behavioral_divergence",
    "batch/policy_kl",
    "batch/minibatch_limit",
    "staleness/effective_samples",
    "staleness/learning_rate_factor",
    "charts/ranks",
    "batch/rank_imbalance",
    "time/collectives",
    "time/callback",
)


def test_importing_the_package_loads_no_heavy_library():
    code = "import sys, anybatch, anybatch.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "anybatch.cli.main" in loaded
    assert not loaded & {"torch", "numpy", "envpool", "gymnasium", "rich", "tensorboard"}


def config_classes() -> list[type]:
    """The configs of all algorithms and every group in them."""
    found: dict[type, None] = {}
    waiting: list[type] = list(CONFIGS.values())
    while waiting:
        kind = waiting.pop()
        found[kind] = None
        groups = map(group_of, get_type_hints(kind).values())
        waiting += [group for group in groups if group is not None and group not in found]
    return list(found)


def group_of(hint: object) -> Any:
    """The config class of a field that holds a group, or may hold one."""
    return next((kind for kind in (hint, *get_args(hint)) if dataclasses.is_dataclass(kind)), None)


def is_group(hint: object) -> bool:
    return group_of(hint) is not None or get_origin(hint) is ClassVar


@pytest.mark.parametrize("kind", config_classes(), ids=lambda kind: kind.__name__)
def test_every_setting_says_what_it_means(kind: type):
    settings = {name for name, hint in get_type_hints(kind).items() if not is_group(hint)}
    assert settings and not settings - documented(kind).keys()
    assert inspect.getdoc(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


READ_BY_PROPERTIES = {"tuned_at", "envs_per_rank", "overlap"}
"""Settings that only properties of a config read, which others read instead."""


@pytest.fixture(scope="module")
def attributes() -> set[str]:
    """Attributes that are read where something depends on them, not where settings are checked or shown."""
    shows = ("cli/", "lab/", "runs/advice.py", "runs/plan_text.py", "dial/table.py", "__main__.py")
    texts = [path.read_text() for path in SOURCES if not str(path.relative_to(PACKAGE)).startswith(shows)]
    return {name for text in texts for name in re.findall(r"\.([a-z]\w*)\b", text)}


@pytest.mark.parametrize("kind", config_classes(), ids=lambda kind: kind.__name__)
def test_every_setting_is_read_somewhere(kind: type, attributes: set[str]):
    """By name only: a setting that nothing reads may hide behind one of the same name."""
    unread = {field.name for field in dataclasses.fields(kind)} - attributes - READ_BY_PROPERTIES
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
    # A controller's, and the scale or what it is more than.
    elsewhere = (*NOT_OF_PPO, "noise/batch_", "batch/noise_scale")
    assert not [name for name in missing if not name.startswith(elsewhere)]
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


@pytest.mark.parametrize(("compiled", "optimizer"), [("auto", "adam"), ("off", "adam"), ("off", "sgd")])
def test_a_run_never_waits_for_torchs_compiler(compiled: str, optimizer: str, tmp_path: Path):
    code = (
        "import sys; from anybatch.cli import main; "
        "main(['train', '--total-env-steps', '512', '--num-steps', '32', '--evaluation.num-envs', '1', "
        f"'--native', '{compiled}', '--optimizer.name', '{optimizer}']); "
        "assert 'torch.optim.adam' in sys.modules and 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
