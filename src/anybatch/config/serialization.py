"""Conversion of configs to plain dicts, for config.json, and back, with checks."""

import dataclasses
import difflib
import numbers
import types
from collections.abc import Collection, Iterable
from typing import Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from anybatch.config.require import LARGEST_COUNT
from anybatch.errors import ConfigError

Config = TypeVar("Config")

NONE = "none"
"""How a preset writes an optional number that is absent: TOML has no null."""

_DESCRIPTIONS = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    type(None): NONE,
}

NAMES_ELSEWHERE = {
    "num-envs": "n-envs nenvs envs num-env num-workers batch-size train-batch-size",
    "num-steps": "n-steps nsteps rollout-length rollout-fragment-length unroll-length horizon batch-size "
    "train-batch-size",
    "update.minibatches-per-epoch": "num-minibatches n-minibatches nminibatches num-mini-batches "
    "minibatch-size mini-batch-size batch-size train-batch-size",
    "update.epochs": "epochs n-epochs nepochs num-epochs ppo-epochs update-epochs num-learning-epochs "
    "num-sgd-iter",
    "update.target-kl": "target-kl desired-kl",
    "total-env-steps": "total-timesteps timesteps num-timesteps n-timesteps total-steps max-steps "
    "num-env-steps steps",
    "env-steps": "total-env-steps total-timesteps timesteps num-timesteps n-timesteps total-steps",
    "optimizer.learning-rate": "lr learning-rate step-size",
    "optimizer.anneal": "anneal-lr lr-schedule",
    "optimizer.eps": "adam-eps",
    "optimizer.max-grad-norm": "max-grad-norm grad-clip clip-grad-norm",
    "objective.discount": "gamma discount discount-factor",
    "objective.gae-lambda": "gae-lambda lambda lam",
    "objective.q-lambda": "q-lambda gae-lambda lambda lam",
    "objective.clip": "clip clip-range cliprange clip-coef clip-ratio clip-param clip-eps",
    "objective.value-clip": "clip-range-vf clip-vloss",
    "objective.entropy-coefficient": "ent-coef ent-coeff entropy-coef entropy-coeff entropy-cost",
    "objective.value-coefficient": "vf-coef vf-coeff vf-loss-coeff value-coef value-loss-coef",
    "objective.advantage-normalization": "norm-adv normalize-advantage normalize-advantages",
    "normalize.observations": "norm-obs normalize-obs",
    "normalize.rewards": "norm-reward norm-rewards normalize-reward",
    "exploration.start": "start-e",
    "exploration.end": "end-e",
    "exploration.fraction": "exploration-fraction",
    "env": "env-id env-name gym-id task",
    "preset": "algo algorithm",
    "network.hidden-sizes": "net-arch hidden-size hidden-sizes hidden-dim",
    "evaluation.every-env-steps": "eval-freq eval-every eval-interval",
    "evaluation.num-envs": "episodes num-episodes eval-episodes n-eval-episodes",
    "evaluation.greedy": "greedy deterministic",
    "record.checkpoint-every-seconds": "save-freq checkpoint-freq",
    "record.log-every": "log-every log-interval log-freq print-freq",
    "record.wandb": "track wandb",
    "device": "cuda gpu",
    "run-dir": "log-dir logdir output-dir save-dir out",
    "onnx": "out",
    "hub": "out",
    "name": "exp-name experiment-name run-name",
}
"""Ours, as flags without dashes, and what other libraries call them. A name may stand for several of ours."""


def config_to_dict(config: Any) -> dict[str, Any]:
    """Nested dicts, with tuples as lists."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def config_from_dict(
    kind: type[Config], data: object, where: str = "", *, may_lack_settings: bool = False
) -> Config:
    """The inverse of `config_to_dict`. A ConfigError names what is unknown, missing or wrong.

    `where` is the place of `data` in the whole config, for the messages. A record of an earlier version may
    lack newer settings: they get their defaults.
    """
    hints = {name: hint for name, hint in get_type_hints(kind).items() if get_origin(hint) is not ClassVar}
    title = where or kind.__name__
    if not isinstance(data, dict):
        raise ConfigError(f"{title} = {data!r}: must be a table of settings")
    settings = cast("dict[str, object]", data)
    unknown, missing = sorted(settings.keys() - hints.keys()), sorted(hints.keys() - settings.keys())
    if may_lack_settings:
        missing = [name for name in missing if name in _required(kind)]
    wrong = {"unknown": unknown, "missing": missing}
    parts = [f"{word} {', '.join(names)}" for word, names in wrong.items() if names]
    if parts and may_lack_settings:
        raise ConfigError(f"the settings of {title} do not fit this version: {'; '.join(parts)}")
    if parts:
        raise ConfigError(f"{title}: {'; '.join(parts)}{_meant(hints, unknown, in_group=bool(where))}")
    prefix = f"{where}." if where else ""
    return kind(
        **{
            name: _value(hints[name], settings[name], prefix + name, may_lack_settings)
            for name in hints
            if name in settings
        }
    )


def _meant(hints: dict[str, Any], unknown: list[str], *, in_group: bool) -> str:
    """The settings that unknown ones may stand for: similar names, and the same names within groups. Where
    none is similar, all settings of the group."""
    groups = {name: group for name, hint in hints.items() if (group := _group(hint)) is not None}
    known = {name: name.replace("_", "-") for name in hints} | {
        f"{name}.{setting}": f"{name}.{setting}".replace("_", "-")
        for name, group in groups.items()
        for setting in get_type_hints(group)
    }
    elsewhere = meant_elsewhere(unknown, known.values())
    if dotted := [name for name in unknown if name in known and "." in name]:
        group, _, setting = dotted[0].partition(".")
        return f"; write {group}={{{setting!r}: …}} instead"
    near = [name for name, flag in known.items() if flag in elsewhere] or [
        *(name for wrong in unknown for name in difflib.get_close_matches(wrong, hints, n=1)),
        *(
            f"{name}.{wrong}"
            for wrong in (name.rpartition(".")[2] for name in unknown)
            for name, group in groups.items()
            if name != "tuned_at" and wrong in get_type_hints(group)
        ),
    ]
    if near:
        return f"; did you mean {', '.join(near)}?"
    return f"; the settings are {', '.join(hints)}" if unknown and in_group else ""


def meant_elsewhere(names: Iterable[str], known: Collection[str]) -> list[str]:
    """The names among `known` that `names` stand for elsewhere. All are without leading dashes."""
    unknown = {name.replace("_", "-").lower() for name in names}
    return [
        ours for ours, theirs in NAMES_ELSEWHERE.items() if ours in known and unknown & set(theirs.split())
    ]


def _required(kind: Any) -> set[str]:
    """The fields of a config that have no default."""
    none = dataclasses.MISSING
    return {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is none and field.default_factory is none
    }


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return config_to_dict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, object]", value).items()}
    return value


def _value(hint: Any, value: object, where: str, may_lack_settings: bool) -> object:
    group = _group(hint)
    if group is not None and not (value is None and _fits(hint, None)):
        return config_from_dict(group, value, where, may_lack_settings=may_lack_settings)
    if get_origin(hint) is tuple and isinstance(value, list):
        value = tuple(cast("list[object]", value))
    if value == NONE and _fits(hint, None):
        value = None
    value = _of_python(value)
    if type(value) is int and float in (hint, *get_args(hint)) and abs(value) <= LARGEST_COUNT:
        value = float(value)  # larger ones are refused below
    if isinstance(value, float) and value.is_integer() and not _fits(hint, value) and _fits(hint, int(value)):
        value = int(value)  # 1e6 is a float in Python and in TOML
    if not _fits(hint, value):
        raise ConfigError(f"{where} = {value!r}: must be {_description(hint)}")
    return value


def _of_python(value: object) -> object:
    """A number of NumPy as one of Python; anything else as it is."""
    if type(value) in (bool, int, float):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def _group(hint: Any) -> type[Any] | None:
    """The dataclass of a field that holds a group of settings, or may hold one."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return next((kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)), None)


def _fits(hint: Any, value: object) -> bool:
    """Whether a value has the type of a field. Knows only the types that configs use."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(argument, value) for argument in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        entries = cast("tuple[object, ...]", value) if isinstance(value, tuple) else None
        return entries is not None and all(_fits(arguments[0], entry) for entry in entries)
    if origin is dict:
        table = cast("dict[str, object]", value) if isinstance(value, dict) else None
        return table is not None and all(_fits(arguments[1], entry) for entry in table.values())
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return type(value) is (type(None) if hint is None else hint)


def _description(hint: Any) -> str:
    """The values of a field, in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_description, arguments))
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"a list, each entry {_description(arguments[0])}"
    if origin is dict:
        return f"a table, each entry {_description(arguments[1])}"
    return _DESCRIPTIONS[hint]
