"""The pages of metrics and presets, made from the code."""

from collections.abc import Iterator
from itertools import groupby

from anybatch import presets
from anybatch.cli.preset_list import chosen_for
from anybatch.presets import Preset
from anybatch.runs.metrics import METRICS
from anybatch.text import counted

METRICS_INTRODUCTION = """# Metrics

Every metric that a run writes to `metrics.jsonl`, to TensorBoard and to any tracker, generated from the code.
The x axis is env steps. Losses are means over all samples or gradient steps of an iteration, not only those
of the last minibatch. A metric that could not be measured is absent, never 0.
"""
METRIC_GROUPS = {
    "charts": "Progress",
    "losses": "Losses",
    "batch": "The batch",
    "advantage": "Advantages",
    "proximal": "The proximal policy",
    "importance": "Importance weights",
    "staleness": "Age of the data",
    "auxiliary": "The auxiliary phase of PPG",
    "evaluation": "Evaluations during training",
    "time": "Where the time goes",
}
FAMILIES = {
    "cartpole": "Classic control",
    "image": "Other environments with images",
    "minatar": "MinAtar",
    "mujoco": "MuJoCo",
    "vector": "Other environments with vectors",
}
"""Titles of presets by the first word of their names."""
PRESETS_INTRODUCTION = """# Presets

A preset is a named configuration that states the source of its numbers and the batch they were tuned at. This
list is generated from the code. `anybatch presets NAME` prints a preset as a complete file with the origin of
each number, and `anybatch plan --preset NAME` shows its batches. Your own file can extend any preset:

```toml
# my-preset.toml
extends = "cartpole-ppo-ewma"
description = "CartPole with twice the rollout length"
source = "our own runs, seeds 1 to 3"
num_steps = 256
tuned_at = "own batch"
```
"""


def metrics_page() -> str:
    sections = [METRICS_INTRODUCTION]
    ordered = sorted(METRICS.items(), key=lambda metric: order(prefix_of(metric[0])))
    for prefix, metrics in groupby(ordered, key=lambda metric: prefix_of(metric[0])):
        rows = [f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |" for name, meaning in metrics]
        title = METRIC_GROUPS.get(prefix, prefix.capitalize())
        sections.append("\n".join([f"## {title}\n", "| metric | meaning |", "|---|---|", *rows, ""]))
    return "\n".join(sections)


def prefix_of(metric: str) -> str:
    return metric.partition("/")[0]


def order(prefix: str) -> int:
    known = list(METRIC_GROUPS)
    return known.index(prefix) if prefix in known else len(known)


def presets_page() -> str:
    return "\n".join([PRESETS_INTRODUCTION, *preset_sections()])


def preset_sections() -> Iterator[str]:
    known = [presets.load(name) for name in presets.names()]
    for family, members in groupby(known, key=lambda preset: preset.name.partition("-")[0]):
        yield f"## {FAMILIES.get(family, family.capitalize())}\n"
        yield from map(preset_section, members)


def preset_section(preset: Preset) -> str:
    config = preset.config
    batch = f"{counted(config.num_envs, 'env')} × {counted(config.num_steps, 'step')}"
    facts = [f"{config.env} · {batch} · {config.total_env_steps:,} env steps"]
    facts += [f"selected by {environments}" for environments in chosen_for(preset.name)]
    if preset.extends:
        facts.append(f"extends [`{preset.extends[0]}`](#{preset.extends[0]})")
    lines = [f"### `{preset.name}`", "", f"{full_stop(preset.description)}", ""]
    lines += [f"- {fact}" for fact in facts]
    lines.append(f"- source: {preset.source}")
    return "\n".join([*lines, ""])


def full_stop(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
