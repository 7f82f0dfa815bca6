"""The code blocks of the README and of the documentation work as they stand.

Commands are run as they are, but for the length of trainings: SHORT says how short they are made.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from blocks import LANGUAGES, PAGES, Block, Command, blocks_of, name_of

from anybatch.cli import main
from anybatch.cli.main import COMMANDS
from anybatch.cli.parser import Argv
from anybatch.config import CONFIGS
from anybatch.config.require import whole_number
from anybatch.runs.metrics import METRICS
from docs_build import flag_reference

LENGTH = "total-env-steps"
SHORT = {LENGTH: "600", "evaluation.num-envs": "2", "evaluation.max-episode-steps": "50"}
"""Flags that a training gets instead of its own."""
PLANNED = {"train", "plan"}
OF_OTHER_PROGRAMS = {
    "--standalone",
    "--nproc-per-node",
    "--nnodes",
    "--max-restarts",
    "--rdzv-endpoint",
    "--rdzv-id",
}
"""Flags of torchrun, which pages may name."""

runnable = [page for page in PAGES if any(block.reason is None for block in blocks_of(page))]


@pytest.fixture(autouse=True)
def modules_of_the_page_are_forgotten(tmp_path: Path) -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.mark.parametrize("page", runnable, ids=name_of)
def test_the_blocks_of_a_page_work_one_after_another(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    for block in blocks_of(page):
        if block.reason is None:
            work(block, capsys)


def work(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    if block.file is not None:
        Path(block.file).write_text(block.text)
    elif block.language == "python":
        check_prints(block.text, printed_by(block.text, capsys))
    elif block.language == "bash":
        assert block.commands, f"nothing here is run: {block.text}"
        for command in block.commands:
            run(command, capsys)


def printed_by(code: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})
    return capsys.readouterr().out


def check_prints(code: str, said: str) -> None:
    """A number in a comment behind `print(…)` is what it prints."""
    for number in re.findall(r"print\(.*# (tensor\(.*|0\.\d+)", code):
        assert number.rstrip("….") in said


def run(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    with contextlib.suppress(SystemExit) if "--help" in command.words else contextlib.nullcontext():
        main(expanded(shortened(command)))
    said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    if command.shown is not None:
        shown = [line.rstrip() for line in command.shown.strip().splitlines()]
        assert [line for line in said if not line.startswith("note:")][: len(shown)] == shown


def shortened(command: Command) -> list[str]:
    """A training of a few hundred steps, or of a twentieth of those it names, instead of a long one."""
    words = list(command.words)
    if command.name not in ("train", "resume") or "--help" in words:
        return words
    short = dict(SHORT) if command.name == "train" else {}
    if named := env_steps_of(command):
        short[LENGTH] = str(named // 20)
    return Argv(words).without(*short) + [f"--{flag}={value}" for flag, value in short.items()]


def env_steps_of(command: Command) -> int | None:
    """The length that a command names."""
    named = Argv(command.words).value(LENGTH)
    return None if named is None else whole_number(named)


@pytest.mark.parametrize("page", runnable, ids=name_of)
def test_a_run_is_resumed_for_longer_than_it_was_trained(page: Path):
    """Trainings are shortened here, so a resume that readers would be refused could work in the tests."""
    done: int | None = None
    for command in [one for block in blocks_of(page) if block.reason is None for one in block.commands]:
        if command.name == "resume":
            assert done is not None, "the training before it does not name its length"
            assert (env_steps_of(command) or 0) > done
        if command.name in ("train", "resume"):
            done = env_steps_of(command)


def expanded(words: list[str]) -> list[str]:
    """What a shell makes of runs/*."""
    return [
        path
        for word in words
        for path in (sorted(map(str, Path().glob(word))) if word.endswith("/*") else [word])
    ]


SETTINGS = set[str]().union(*map(flag_reference.setting_flags, CONFIGS))


def with_negations(flags: set[str]) -> set[str]:
    """--record.no-tensorboard is a flag too."""
    return flags | {re.sub(r"^--((?:[\w-]+\.)?)", r"--\1no-", flag) for flag in flags}


unrun = [(page, block) for page in PAGES for block in blocks_of(page) if block.reason is not None]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{name_of(page)}: {' '.join(command.words)}")
        for page, block in unrun
        for command in block.commands
    ],
)
def test_a_command_that_is_not_run_could_be(command: Command):
    assert command.name in COMMANDS
    known = flag_reference.command_flags(command.name)
    if flag_reference.takes_every_setting(command.name):
        known |= SETTINGS
    assert not set(command.flags) - with_negations(known)
    if command.name in PLANNED and not any(word.endswith(".toml") for word in command.words):
        main(["plan", *Argv(command.words[1:]).without("name")])


@pytest.mark.parametrize(
    "words", [line for _, block in unrun for line in block.lines if "torchrun" in line], ids=" ".join
)
def test_torchrun_understands_what_it_is_told(words: list[str]):
    from torch.distributed.run import get_args_parser

    told = get_args_parser().parse_args(words[words.index("torchrun") + 1 :])
    assert told.module and told.training_script == "anybatch"


def test_every_block_says_what_it_is():
    for page in PAGES:
        for block in blocks_of(page):
            assert block.language in LANGUAGES, f"{name_of(page)}: ```{block.language}"
            assert not block.rest or block.reason, f"{name_of(page)}: ```{block.language}{block.rest}"
            if block.language == "text":
                assert not re.search(r"^(\$ )?anybatch ", block.text, re.M), name_of(page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_stand_in_fenced_blocks(page: Path):
    assert not re.search(r"^ {4}(\$ )?anybatch ", page.read_text(), re.M), "the tests run fenced blocks only"


def test_there_are_blocks_of_every_kind():
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert len([block for block in blocks if block.language == "python"]) >= 8
    assert len([command for block in blocks for command in block.commands]) >= 60
    assert len([block for block in blocks if block.reason]) < len(blocks) / 2


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_metrics_that_a_page_names_are_written(page: Path):
    prefixes = {name.partition("/")[0] for name in METRICS}
    named = re.findall(rf"`((?:{'|'.join(prefixes)})/\w+)`", page.read_text())
    assert not set(named) - METRICS.keys()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_flags_that_a_page_names_in_its_text_exist(page: Path):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    words = [word for code in re.findall(r"`((?:--|anybatch )[^`]*)`", text) for word in code.split()]
    named = {word for word in words if re.fullmatch(r"--[a-z][\w.-]*", word)}
    commands = map(flag_reference.command_flags, COMMANDS)
    assert (
        not named
        - with_negations(SETTINGS.union(*commands))
        - {"--from", "--help", "--help-all"}
        - OF_OTHER_PROGRAMS
    )
