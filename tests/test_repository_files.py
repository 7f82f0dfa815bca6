"""Files for GitHub and pre-commit, which nothing here executes: their form, and that they run what we run."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = [
    path for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"
]


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_jobs_with_steps_and_few_permissions(path: Path):
    workflow = read(path)
    assert {"name", "permissions", "jobs"} <= workflow.keys() and True in workflow  # YAML reads `on` as True
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["runs-on"].startswith("ubuntu-") and job["timeout-minutes"] > 0
        assert set(job.get("needs", "").split()) <= workflow["jobs"].keys() - {name}
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[\w./-]+", step.get("uses", "a/b@v1"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_people_run(path: Path):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    runs = [step["run"] for job in read(path)["jobs"].values() for step in job["steps"] if "run" in step]
    for command in runs:
        if command.startswith("make "):
            assert command.removeprefix("make ") in targets
        elif command.startswith(".ci/"):
            assert (ROOT / command).is_file()


def test_workflows_use_the_oldest_python_that_is_supported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    versions = re.findall(r'python-version: "(.*)"', "".join(path.read_text() for path in WORKFLOWS))
    assert versions and set(versions) == {oldest}


def test_pre_commit_runs_the_checks_of_make_check():
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    checks = re.findall(r"\$\(BIN\)/(.+)", recipe)
    hooks = [hook for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    # ruff is told the files instead of the folder
    assert [hook["entry"].removeprefix(".venv/bin/") for hook in hooks] == [
        check.removesuffix(" .").removesuffix(" . --check") for check in checks
    ]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_asks_something(path: Path):
    form = read(path)
    assert form["name"] and form["description"]
    names = [field["id"] for field in form["body"]]
    assert names and len(names) == len(set(names))
    assert all(
        field["type"] in ("textarea", "input") and field["attributes"]["label"] for field in form["body"]
    )
