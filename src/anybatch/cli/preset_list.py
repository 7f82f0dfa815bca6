"""`anybatch presets`: the named configurations, or one of them with the origin of each number."""

import json
import re
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from anybatch import presets as preset_files
from anybatch.cli import help_page
from anybatch.cli.flags import PresetsFlags
from anybatch.cli.parser import Argv, parse
from anybatch.config.serialization import config_to_dict
from anybatch.presets import DEFAULT_ORIGIN, Preset
from anybatch.presets.by_env import FAMILIES

NEXT = """anybatch presets NAME          print one with its source and the origin of each number
anybatch plan --preset NAME    show its batches, without training"""


def presets(words: list[str]) -> None:
    flags = parse(PresetsFlags(), Argv(words))
    if flags.name in preset_files.names() or flags.name.endswith(".toml"):
        preset = preset_files.load(flags.name)
        print_json(details(preset)) if flags.json else show_one(preset)
        return
    found = [name for name in preset_files.names() if flags.name.lower() in name]
    # Where there are none, the error names the nearest.
    known = [preset_files.load(name) for name in found or [flags.name]]
    print_json([summary(preset) for preset in known]) if flags.json else show_list(known)


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))


def summary(preset: Preset) -> dict[str, object]:
    config = preset.config
    return {
        "name": preset.name,
        "description": preset.description,
        "extends": preset.extends,
        "sources": preset.sources(),
        "algorithm": config.algorithm,
        "env": config.env,
        "num_envs": config.num_envs,
        "num_steps": config.num_steps,
        "total_env_steps": config.total_env_steps,
        "chosen_for": chosen_for(preset.name),
    }


def details(preset: Preset) -> dict[str, object]:
    return summary(preset) | {"config": config_to_dict(preset.config), "origins": preset.origins()}


def chosen_for(name: str) -> list[str]:
    """The environments that select this preset if none is named."""
    return [family.all for family in FAMILIES if family.preset == name]


def show_list(known: Sequence[Preset]) -> None:
    """Names by what they are for: first what environments select, then what has to be named."""
    names = [preset.name for preset in known]
    selected = [(family.preset, family.all) for family in FAMILIES if family.preset in names]
    others = [(preset.name, preset.description) for preset in known if not chosen_for(preset.name)]
    console = Console(highlight=False)
    width = help_page.page_width()
    for title, pairs in (("What environments select", selected), ("Others, by --preset NAME", others)):
        if pairs:
            console.print(Text(title, style="bold"))
            print("\n".join(help_page.rows(pairs, width)), end="\n\n")
    console.print(NEXT, markup=False, soft_wrap=True)


def show_one(preset: Preset) -> None:
    """The complete file; on a terminal, defaults are dimmed and names of tables are bold."""
    console = Console(highlight=False)
    for line in preset_files.as_toml(preset).splitlines():
        console.print(styled(line), soft_wrap=True)


def styled(line: str) -> Text:
    text = Text(line)
    if line.endswith(f"# {DEFAULT_ORIGIN}") or line.startswith("#"):
        text.stylize("dim")
    elif re.fullmatch(r"\[.*\]", line):
        text.stylize("bold")
    elif "  # " in line:
        text.stylize("cyan", line.rindex("  # "))
    return text
