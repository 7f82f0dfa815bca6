"""A preset as one complete file, in which a comment after every number names its origin."""

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from anybatch.config.serialization import NONE, config_to_dict
from anybatch.presets.files import Preset

WIDTH = 78
"""Width of comments. Settings are rarely longer."""
COMMENT_COLUMN = 44
"""Column of the origins, after settings that are not longer."""


def as_toml(preset: Preset) -> str:
    """A file that loads as the same config without extending another."""
    origins = preset.origins()
    settings = config_to_dict(preset.config)
    lines = [*header(preset), "", *about(preset), ""]
    lines.append(setting("algorithm", preset.config.algorithm, origins["algorithm"]))
    lines += table(settings, "", origins)
    return "\n".join(lines) + "\n"


def header(preset: Preset) -> Iterator[str]:
    """Comments: how to read the file, and which presets it extends."""
    reading = "The comment after a value names the preset that states it."
    yield from comment(f"The preset {preset.name}, complete. {reading}{' It extends' * bool(preset.extends)}")
    for file in preset.files[-2::-1]:
        yield from comment(f"{file.name}: {file.description}", indent="  ")


def about(preset: Preset) -> Iterator[str]:
    """Description and source; of a chain, the sources of all files, each named."""
    files = preset.files
    named = [f"{file.name}: {line}" for file in reversed(files) for line in file.source.split("\n") if line]
    yield prose("description", [preset.description])
    yield prose("source", named if len(files) > 1 else preset.source.split("\n"))


def table(settings: dict[str, Any], name: str, origins: dict[str, str]) -> Iterator[str]:
    """The settings of a table, then the tables in it."""
    path = f"{name}." if name else ""
    tables = {key: value for key, value in settings.items() if isinstance(value, dict) and value}
    for key, value in settings.items():
        if key not in tables:
            yield setting(key, value, origins[path + key])
    for key, value in tables.items():
        yield ""
        yield f"[{path}{bare_or_quoted(key)}]"
        yield from table(value, path + key, origins)


def setting(key: str, value: object, origin: str) -> str:
    return f"{f'{bare_or_quoted(key)} = {toml_value(value)}':{COMMENT_COLUMN}}  # {origin}"


def comment(text: str, indent: str = "") -> list[str]:
    """Lines of a comment; `indent` is that of its text."""
    first, others = f"# {indent}", f"# {2 * indent}"
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others)


def prose(key: str, paragraphs: list[str]) -> str:
    """A string on one line if it fits, otherwise with wrapped paragraphs."""
    line = f"{key} = {toml_string(' '.join(paragraphs))}"
    if len(line) <= WIDTH and len(paragraphs) == 1:
        return line
    # A backslash at the end of a line joins it with the next one.
    wrapped = [
        " \\\n".join(
            textwrap.wrap(
                toml_string(paragraph)[1:-1], WIDTH - 2, break_long_words=False, break_on_hyphens=False
            )
        )
        for paragraph in paragraphs
    ]
    return f'{key} = """\n' + "\n".join(wrapped) + '"""'


def toml_value(value: object) -> str:
    match value:
        case None:
            return toml_string(NONE)
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value:_}"
        case float():
            return re.sub(r"e([+-])0+", r"e\1", repr(value))
        case list():
            return f"[{', '.join(toml_value(item) for item in value)}]"
        case dict():
            return "{}"  # those with entries are tables
        case _:
            return toml_string(str(value))


def toml_string(text: str) -> str:
    # JSON's escapes are TOML's, except for the one control character that JSON allows.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def bare_or_quoted(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else toml_string(key)
