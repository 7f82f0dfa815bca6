"""The settings of a run that a command offers as flags: those that have an effect there."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, get_type_hints

from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from anybatch.cli.documented import documented
from anybatch.config import EnvConfig, EvaluationConfig

Offered = Mapping[str, frozenset[str]]
"""The names of the settings in each group. The group "" holds those without a group."""


def names_in(kind: type[EnvConfig] | type[EvaluationConfig]) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


PLAYING: Offered = {
    "": frozenset({"env", "seed", "device", "threads", "dtype"}),
    "env_config": names_in(EnvConfig) - {"time_limit", "actions"},
    "evaluation": names_in(EvaluationConfig) - {"every_env_steps"},
    "network": frozenset({"factory"}),
    "exploration": frozenset({"end"}),
}
"""What an evaluation of a trained policy reads, with or without an export."""
WATCHING: Offered = {**PLAYING, "evaluation": frozenset({"greedy"})}
"""What a video of a trained policy reads."""


def offered_by(flags: Any) -> Offered | None:
    """The settings that a command offers, from the dataclass of its flags; None: all."""
    return getattr(flags, "offered", None)


def fields_of(
    config: Any, offered: Offered | None, group: str | None = None
) -> list["dataclasses.Field[Any]"]:
    """The fields of a config, or of one of its groups, that are offered; a group is one of its fields."""
    fields = dataclasses.fields(config if group is None else getattr(config, group))
    if offered is None:
        return list(fields)
    names = offered.get(group, frozenset()) if group is not None else offered[""] | offered.keys()
    return [field for field in fields if field.name in names]


def offering(config: Any, offered: Offered | None) -> ConstructorRegistry:
    """tyro's rules for a config of which only some settings are flags; the others keep their values."""
    rules = ConstructorRegistry()
    if offered is not None:
        shown = {type(config): fields_of(config, offered)}
        shown |= {
            type(getattr(config, group)): fields_of(config, offered, group)
            for group in offered
            if group and hasattr(config, group)
        }
        rules.struct_rule(partial(struct_of, shown))
    return rules


def struct_of(
    shown: Mapping[type, list["dataclasses.Field[Any]"]], info: StructTypeInfo
) -> StructConstructorSpec | None:
    """The flags of a config or of a group, if it is one of those in `shown`."""
    kind, default = type(info.default), info.default
    if kind not in shown:
        return None
    hints, meanings = get_type_hints(kind), documented(kind)
    fields = tuple(
        StructFieldSpec(field.name, hints[field.name], getattr(default, field.name), meanings.get(field.name))
        for field in shown[kind]
    )
    return StructConstructorSpec(lambda **values: dataclasses.replace(default, **values), fields)
