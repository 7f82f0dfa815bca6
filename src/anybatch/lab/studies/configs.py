"""The settings of a cell: those of its base, of its arm, of its batch and of the point of the grid."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from anybatch import presets
from anybatch.config import CONFIGS, AnyConfig, EnvConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.envs.published import on_published_scale
from anybatch.errors import ConfigError
from anybatch.lab.studies.files import Arm, Base, Grid, Study


class UnreachableError(Exception):
    """A ratio that does not give a whole number of envs or minibatches."""


def base_settings(study: Study, grid: Grid, env: str, *, preset: str | None) -> dict[str, Any]:
    """All settings of a base in one environment, whose batch is the tuned batch."""
    base, name = chosen_base(study, grid, env, preset)
    config = presets.load(name).config
    settings = presets.overlaid(config_to_dict(config), base.settings)
    settings = presets.overlaid(settings, base.envs.get(env, {}))
    settings |= {"env": env, "threads": study.threads}
    if grid.total_env_steps is not None:
        made_for = env in grid.envs
        longest = grid.total_env_steps if made_for else settings["total_env_steps"]
        settings["total_env_steps"] = min(grid.total_env_steps, longest)
    # A cell's engine threads and logs must not slow other cells down.
    quiet = {"record": {"tensorboard": False}, "env_config": {"engine_threads": study.threads}}
    settings = presets.overlaid(settings, quiet) | {"tuned_at": presets.own_batch(settings)}
    return {"algorithm": config.algorithm} | settings


def chosen_base(study: Study, grid: Grid, env: str, preset: str | None) -> tuple[Base, str]:
    """The base of a grid, and its preset: another one where it is requested, or if the base does not fit."""
    base = study.bases[grid.base]
    if preset is None:
        if env in grid.envs or env in base.envs:
            return base, base.preset
        family = presets.for_env(env, EnvConfig()).preset
        if family == presets.for_env(grid.envs[0], EnvConfig()).preset:
            return base, base.preset
        preset = family if study.other_env is None else study.other_env.preset or family
    return study.other_env or Base(preset=preset, settings={}, envs={}), preset


def cell_settings(
    arm: Arm,
    base: Mapping[str, Any],
    *,
    ratio: str,
    point: Mapping[str, Any],
    factors: Mapping[str, float],
    where: str,
) -> dict[str, Any]:
    """All settings of a cell, checked. `where` names it in messages."""
    settings = presets.overlaid(dict(base), arm.settings)
    for path, value in point.items():
        settings = presets.overlaid(settings, nested(path, value))
    for path, factor in factors.items():
        settings = presets.overlaid(settings, nested(path, factor * number_at(settings, path, where)))
    at_base = plain(settings, where)
    if ratio == "1":
        return at_base
    settings = presets.overlaid(settings, batch_of(settings, Fraction(ratio), arm))
    try:
        return plain(settings, where)
    except ConfigError as error:
        raise UnreachableError(str(error)) from None


def batch_of(settings: Mapping[str, Any], ratio: Fraction, arm: Arm) -> dict[str, Any]:
    """The settings of a batch that is a fraction or a multiple of the base's."""
    batch: dict[str, Any] = {"num_envs": whole(settings["num_envs"], ratio, "envs")}
    if settings["minibatch"] == "auto":
        batch["minibatch"] = "scaled"  # the rules that a study tests hold in both directions
    if arm.minibatches_follow:
        minibatches = whole(settings["update"]["minibatches_per_epoch"], ratio, "minibatches")
        batch["update"] = {"minibatches_per_epoch": minibatches}
    return batch


def whole(number: int, ratio: Fraction, what: str) -> int:
    part = number * ratio
    if part.denominator != 1:
        raise UnreachableError(f"{ratio} of {number} {what} is not a whole number")
    return int(part)


def nested(path: str, value: Any) -> dict[str, Any]:
    """The setting a.b.c as tables in tables."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def setting_at(settings: Mapping[str, Any], path: str) -> Any:
    """A setting by its path; None if there is none."""
    found: Any = settings
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def number_at(settings: Mapping[str, Any], path: str, where: str) -> float:
    found = setting_at(settings, path)
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise ConfigError(f"{where}: {path} is not a number that a factor could multiply")
    return float(found)


def plain(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings in recorded form, checked by the config."""
    config = config_of(settings, where)
    return {"algorithm": config.algorithm} | config_to_dict(config)


def config_of(settings: Mapping[str, Any], where: str) -> AnyConfig:
    """The config of a cell."""
    known = {key: value for key, value in settings.items() if key != "algorithm"}
    try:
        return config_from_dict(CONFIGS[settings["algorithm"]], known)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def has_published_range(env: str) -> bool:
    """Whether returns of an environment have a published scale."""
    return on_published_scale(env, 0.0) is not None
