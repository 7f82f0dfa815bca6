"""The parser of the command line, on flags of its own."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from anybatch.cli.flags import Flags
from anybatch.cli.parser import Argv, flag_table, parse
from anybatch.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of settings."""

    size: int = 3
    rate: float | None = 0.5
    on: bool = True
    options: dict[str, str] = field(default_factory=lambda: {"old": "1"})


@dataclass(frozen=True, kw_only=True)
class Wheels(Flags):
    """Flags of every type."""

    positional = ("files",)
    files: tuple[Path, ...] = ()
    """Files to read."""
    kind: Literal["round", "square"] = "round"
    limit: int | Literal["auto"] | None = None
    name: str | None = "mine"
    seeds: tuple[int, ...] = (1,)
    dry: bool = False
    the_group: Group = field(default_factory=Group)


def parsed(words: str) -> Wheels:
    return parse(Wheels(), Argv(words.split()))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {}),
        ("--kind square", {"kind": "square"}),
        ("--kind=square --kind round", {}),
        ("--limit 2k", {"limit": 2000}),
        ("--limit auto", {"limit": "auto"}),
        ("--limit 3 --limit None", {}),
        ("--name none", {"name": None}),
        ("--name=--dry", {"name": "--dry"}),
        ("--name=a=b", {"name": "a=b"}),
        ("--seeds 1 -2 3", {"seeds": (1, -2, 3)}),
        ("--seeds=7 8 --dry", {"seeds": (7, 8), "dry": True}),
        ("--seeds none", {"seeds": ()}),
        ("--dry --no-dry", {}),
        ("a b", {"files": (Path("a"), Path("b"))}),
        ("a --dry b --name x c", {"files": (Path("a"), Path("b"), Path("c")), "dry": True, "name": "x"}),
        ("--the_group.size 1e3", {"the_group": Group(size=1000)}),
        ("--the-group.rate none --the-group.no-on", {"the_group": Group(rate=None, on=False)}),
        ("--the-group.rate -.5", {"the_group": Group(rate=-0.5)}),
        ("--the-group.options a 1", {"the_group": Group(options={"old": "1", "a": "1"})}),
        ("--the-group.options old 2", {"the_group": Group(options={"old": "2"})}),
    ],
)
def test_words_become_values(words: str, expected: dict[str, Any]):
    assert parsed(words) == replace(Wheels(), **expected)


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("--kind oval", ["--kind oval", "one of round, square"]),
        ("--limit some", ["--limit some", "a whole number, auto or none"]),
        ("--seeds 1 x", ["--seeds 1 x", "whole numbers"]),
        ("--the-group.rate fast", ["--the-group.rate fast", "a number or none"]),
        ("--the-group.options a", ["--the-group.options a", "pairs"]),
        ("--the-group.on=yes", ["--the-group.on", "takes no value"]),
        ("--kind", ["--kind needs a value"]),
        ("--name --dry", ["--name needs a value"]),
        ("--files a", ["there is no flag --files"]),
        ("--no-kind", ["there is no flag --no-kind"]),
        ("-k round", ["there is no flag -k"]),
        ("--", ["there is no flag --"]),
        ("--siz 3", ["there is no flag --siz", "--the-group.size?"]),
        ("--size 3", ["did you mean --the-group.size?"]),
        ("--dyr --kid 3", ["--dyr or --kid", "--dry, --kind?"]),
    ],
)
def test_what_does_not_fit_is_one_sentence(words: str, facts: list[str]):
    with pytest.raises(UserError) as refusal:
        parsed(words)
    assert all(fact in str(refusal.value) for fact in facts)


def test_a_table_has_the_flags_of_groups_with_their_meanings():
    table = flag_table(Wheels())
    assert table["files"].meaning == "Files to read."
    assert table["the-group.rate"].default == 0.5 and table["the-group.rate"].group == "the-group"


@pytest.mark.parametrize(
    ("words", "value", "others"),
    [
        ("--num-envs 8 --seed 1", "8", "--seed 1"),
        ("--seed 1 --num_envs 8", "8", "--seed 1"),
        ("runs --num_envs=8 --seed 1 --num-envs=9", "9", "runs --seed 1"),
        ("--name __num_envs --num-env=8", None, "--name __num_envs --num-env=8"),
        ("--name=--num_envs=8", None, "--name=--num_envs=8"),
        ("--seed 1 --num-envs", None, "--seed 1"),
    ],
)
def test_a_flag_is_found_among_the_words(words: str, value: str | None, others: str):
    argv = Argv(words.split())
    assert argv.value("num-envs") == value
    assert argv.without("num-envs") == others.split()
