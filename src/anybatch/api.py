"""The Python API: train, resume, load, plan, evaluate, advise, check_env and tune."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import nn

from anybatch import evaluating, planning, presets, training
from anybatch.acting.evaluation import Evaluation, InferencePolicy
from anybatch.config import AnyConfig, EnvConfig, RunConfig
from anybatch.config.require import whole_number
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.dial import Plan, plan_table
from anybatch.envs import check
from anybatch.envs.ids import validate_id
from anybatch.envs.interface import Interface, interface_of
from anybatch.envs.protocol import DiscreteActions, EnvSpec
from anybatch.errors import ConfigError, UserError
from anybatch.export import onnx_file
from anybatch.export.onnx_file import OnnxFile
from anybatch.runs import advice as advice_report
from anybatch.runs import plan_text
from anybatch.runs.advice import Advice
from anybatch.runs.display import Output
from anybatch.runs.iteration import OnIteration
from anybatch.runs.metrics import METRICS, meant
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.runs.stop import Stopped
from anybatch.training import Outcome
from anybatch.user_objects import UserObjects

if TYPE_CHECKING:
    from anybatch.lab.tuning.outcome import Outcome as TunedPreset

logger = logging.getLogger(__name__)

Config = TypeVar("Config", bound=AnyConfig)
PathLike = str | Path


def train(
    config: str | Path | AnyConfig | None = None,
    *,
    env: Any = None,
    network: Any = None,
    run_dir: PathLike = "runs",
    name: str | None = None,
    progress: bool = False,
    on_iteration: OnIteration | None = None,
    **changes: Any,
) -> "TrainedRun":
    """Train a policy in a new run folder under `run_dir`, called `name` or after its settings.

    `config` is the name of a preset, the path of a preset file, or a config; without it, the environment
    selects the preset. `changes` are settings that override it, by their names in the config, such as
    num_envs=16 or optimizer={"learning_rate": 1e-3}. If they change the batch, the numbers that depend on it
    follow by the rules of the dial.

    `env` is an environment's id, a Gymnasium env or vector env, a function that makes a single Gymnasium env,
    or an object with the four methods of `VectorEnv`. `network` is a torch module, a function from the
    environment's spec to one, its name (my_package:make_network), or settings of the library's networks.

    With `progress`, the run shows what the command line shows; otherwise messages go to the logger
    `anybatch`. `on_iteration` is called with an `Iteration` after each one; if it raises an error, the run is
    saved first. A stop signal lets the run save and then raises KeyboardInterrupt.
    """
    validate_callback(on_iteration)
    with Output(shown=progress) as output:
        preset, settings, custom = new_run(config, env, network, changes)
        outcome = training.train(
            settings,
            preset=preset,
            base=path_of(run_dir, "run_dir"),
            name=name,
            output=output,
            custom=custom,
            on_iteration=on_iteration,
        )
    return trained_run(outcome, custom)


def resume(
    folder: PathLike,
    *,
    env: Any = None,
    network: Any = None,
    progress: bool = False,
    on_iteration: OnIteration | None = None,
    **changes: Any,
) -> "TrainedRun":
    """Continue a run from its newest good checkpoint, for example at another batch: num_envs=64.

    `env` and `network` must be passed again if the run was trained with objects, and `network` also if it is
    the name of a function.
    """
    validate_callback(on_iteration)
    with Output(shown=progress) as output:
        record = RunRecord(path_of(folder, "folder"))
        custom, changes = user_objects(env, network, changes)
        settings = custom.named_in(changed(record.config, changes))
        settings = planning.decided(settings, named_in(changes), recorded=record.config)
        outcome = training.resume(record, settings, output=output, custom=custom, on_iteration=on_iteration)
    return trained_run(outcome, custom)


def load(folder: PathLike, *, env: Any = None, network: Any = None) -> "Agent":
    """The policy of a run's newest good checkpoint. It needs no environment to act.

    `network` must be passed again if the run was trained with an object, or with the name of a function.
    `env` is needed only for a run folder without the file spaces.json, such as that of a run with actors.
    """
    record = RunRecord(path_of(folder, "folder"))
    custom, changes = user_objects(env, network, {"evaluation": {"num_envs": 1}})
    config = custom.named_in(changed(record.config, changes))
    loaded = record.load_checkpoint(with_segments=False)
    if env is None and (spaces := record.spaces) is not None:
        spec, interface = spaces
        policy = evaluating.trained_policy(loaded, config, spec, custom)
        return Agent(policy, spec, interface, loaded.env_steps)
    with evaluating.opened_env(config, custom) as made:
        policy = evaluating.trained_policy(loaded, config, made.spec, custom)
        return Agent(policy, made.spec, interface_of(made), loaded.env_steps)


def plan(
    config: str | Path | AnyConfig | None = None, *, env: Any = None, network: Any = None, **changes: Any
) -> "PlanView":
    """The batches of a run and every number that follows from them, without training.

    The arguments are those of `train`.
    """
    _, settings, custom = new_run(config, env, network, changes)
    if custom.env is None:
        validate_id(settings.env, settings.env_config)
    settings = settings.on_ranks(1)
    return PlanView(settings, planning.plan(settings))


def evaluate(
    folder: PathLike,
    episodes: int | None = None,
    *,
    greedy: bool | None = None,
    checkpoint: str | int = NEWEST,
    env: Any = None,
    network: Any = None,
    progress: bool = False,
) -> Evaluation:
    """Evaluate a checkpoint of a run: newest, best or the env steps of one.

    The number of `episodes`, and whether actions are `greedy`, are by default those of the run's config.
    """
    return TrainedRun(folder, env=env, network=network).evaluate(
        episodes, greedy=greedy, checkpoint=checkpoint, progress=progress
    )


def advise(folder: PathLike) -> list[Advice]:
    """What a run's metrics suggest about its settings. Empty if nothing stands out."""
    return TrainedRun(folder).advice()


def check_env(env: Any, env_config: EnvConfig | None = None) -> list[str]:
    """What is wrong with an environment, or makes it hard to learn; one sentence each, empty if nothing.

    `env` is as in `train`. A few hundred random steps are taken, twice with the same seed. Raises EnvError if
    there is no environment of that id.
    """
    return check.check_env(env, env_config)


def tune(
    preset: str | Path | None = None,
    *,
    env: str | None = None,
    network: str | None = None,
    trials: int = 40,
    jobs: int = 1,
    budget: str | None = None,
    num_envs: int | None = None,
    train_at: int | None = None,
    env_steps: int | None = None,
    seeds: Iterable[int] | None = None,
    check_seeds: int | None = None,
    margin: float | None = None,
    search: Mapping[str, tuple[float, float] | None] | Sequence[str] | None = None,
    out: PathLike | None = None,
    progress: bool = False,
) -> "TunedPreset":
    """Tune a preset's numbers with `num_envs` envs, and check the best of `trials` on fresh seeds.

    Arguments correspond to the flags of `anybatch tune` (extra `lab`). `preset` is a name or the path of a
    file; by default the environment selects it. `search` holds changed ranges, such as {"learning-rate":
    (1e-4, 1e-2), "clip": None}, where None keeps the preset's number. A second call with the same `out`
    continues the first.

    Trials run in worker processes, so an environment must be named, not passed as an object. `network` is the
    preset's network.factory, which must be passed if it is a function. The outcome holds the best trial, what
    mattered, the verdict of the check, and `preset_file` for `train(preset_file)`.
    """
    from anybatch.lab.studies import duration
    from anybatch.lab.tuning import tune as tuning
    from anybatch.lab.tuning.plan import Request

    if env is not None and not isinstance(env, str):
        raise ConfigError("env must be the id of an environment: trials run in other processes")
    if network is not None:
        from anybatch.networks import custom

        custom.import_as_named(network)
    chosen = None if env is None else planning.choose_preset(env, EnvConfig()).preset
    given: dict[str, Any] = {
        "preset": str(preset or chosen or presets.DEFAULT),
        "env": env,
        "trials": trials,
        "num_envs": num_envs,
        "train_at": train_at,
        "env_steps": env_steps,
        "seeds": list(seeds) if isinstance(seeds, Iterable) else seeds,
        "check_seeds": check_seeds,
        "margin": margin,
        "search": searched(search),
        "budget_seconds": duration.of_budget(budget),
    }
    asked = {name: value for name, value in given.items() if value is not None}
    request = config_from_dict(Request, asked, may_lack_settings=True)
    with Output(shown=progress) as output:
        where = None if out is None else path_of(out, "out")
        return tuning.tune(request, out=where, jobs=jobs, output=output)


def searched(search: Mapping[str, tuple[float, float] | None] | Sequence[str] | None) -> list[str]:
    """Changed ranges of a tuning, as the command line writes them."""
    from anybatch.lab.tuning.space import FIXED

    if not isinstance(search, Mapping):
        return list(search or ())
    words: list[str] = []
    for name, ends in search.items():
        if ends is not None and (not isinstance(ends, Sequence) or len(ends) != 2):
            raise ConfigError(f"search: {name} = {ends!r}: must be the two ends of a range, or None")
        words.append(f"{name}={FIXED if ends is None else f'{ends[0]}..{ends[1]}'}")
    return words


class Curve(NamedTuple):
    """A metric along a run."""

    env_steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, repr=False)
class PlanView:
    """The plan of a run, which prints as a table."""

    config: AnyConfig
    numbers: Plan

    def __str__(self) -> str:
        return plan_text.render(self.config, self.numbers)

    __repr__ = __str__

    def to_json(self) -> dict[str, object]:
        """All numbers, the rows of the table and its warnings, as plain values."""
        return self.numbers.to_json() | plan_table(self.config, self.numbers).to_json()


class TrainedRun:
    """A run in its folder: its config, plan, metrics and policy."""

    def __init__(self, folder: PathLike, *, env: Any = None, network: Any = None) -> None:
        """`folder` is a run folder, or a folder of runs, of which the newest is used."""
        self._record = RunRecord(path_of(folder, "folder"))
        self._custom, self._named = user_objects(env, network, {})

    def __repr__(self) -> str:
        return f"TrainedRun({str(self.folder)!r})"

    @property
    def folder(self) -> Path:
        return self._record.folder

    @property
    def config(self) -> AnyConfig:
        return self._record.config

    @property
    def plan(self) -> PlanView:
        return PlanView(self.config, planning.plan(self.config))

    @property
    def env_steps(self) -> int:
        """Env steps of the newest metrics row."""
        rows = self._record.rows
        return int(rows[-1]["env_steps"]) if rows else 0

    @property
    def finished(self) -> bool:
        """Whether the run has completed its env steps."""
        return bool((self._record.result or {}).get("finished"))

    @property
    def result(self) -> Mapping[str, Any]:
        """Training return and final evaluation, as in result.json. Empty until the run has ended."""
        return self._record.result or {}

    def returns(self) -> Curve:
        """Env steps, and the mean return of the episodes that ended in each iteration."""
        return self.metric("charts/episodic_return")

    def metric(self, name: str) -> Curve:
        """A metric over the run, at the env steps where it was measured: empty if it never was."""
        rows = self._record.rows
        if name not in METRICS and not any(name in row for row in rows):
            raise UserError(f"there is no metric {name}{meant(name)}")
        known = [row for row in rows if row.get(name) is not None]
        return Curve(
            np.array([row["env_steps"] for row in known], dtype=np.int64),
            np.array([row[name] for row in known], dtype=np.float64),
        )

    def evaluate(
        self,
        episodes: int | None = None,
        *,
        greedy: bool | None = None,
        checkpoint: str | int = NEWEST,
        progress: bool = False,
    ) -> Evaluation:
        """Evaluate a checkpoint: newest, best or the env steps of one.

        The number of `episodes`, and whether actions are `greedy`, are by default those of the run's config.
        """
        settings: dict[str, Any] = {} if greedy is None else {"greedy": greedy}
        if episodes is not None:
            slots = self._custom.env.num_envs if self._custom.env is not None else None
            settings |= evaluation_size(episodes, slots)
        config = changed(self.config, self._named | {"evaluation": settings})
        with Output(shown=progress) as output:
            played = evaluating.evaluate_run(
                self._record, config, output=output, custom=self._custom, checkpoint=str(checkpoint)
            )
        return played.evaluation

    def export_onnx(self, path: PathLike, *, checkpoint: str | int = NEWEST) -> OnnxFile:
        """Write the policy of a checkpoint as an ONNX file, after comparing it with torch (extra `onnx`).

        `checkpoint` is newest, best or the env steps of a checkpoint.
        """
        config = changed(self.config, self._named)
        return onnx_file.export_run(
            self._record, config, Path(path), custom=self._custom, checkpoint=str(checkpoint)
        )

    def advice(self) -> list[Advice]:
        """What the run's metrics suggest about its settings. Empty if nothing stands out."""
        return advice_report.advise(self._record.rows, self.config)


class Agent:
    """A trained policy that takes the environment's observations and returns its actions."""

    def __init__(self, policy: InferencePolicy, spec: EnvSpec, interface: Interface, env_steps: int) -> None:
        self._policy = policy
        self._interface = interface
        self.spec = spec
        self.env_steps = env_steps
        """Env steps that the policy was trained for."""

    def __repr__(self) -> str:
        return f"Agent({self.spec.env_id!r}, env_steps={self.env_steps})"

    @property
    def policy(self) -> nn.Module:
        """The network: an ActorCritic or a QNetwork, whose input are observations as a network sees them."""
        return self._policy.network

    def act(self, obs: Any, *, greedy: bool = True, action_mask: Any = None) -> Any:
        """An action for one observation, or an array of actions for a batch of observations.

        `greedy` takes the most probable action, or the mean of continuous ones; otherwise actions are
        sampled. `action_mask` is for environments that provide masks in their infos. Raises EnvError, a
        ValueError, if an observation is not one of the environment.
        """
        seen, single = self._seen(obs, action_mask)
        action = self._interface.to_engine(self._policy.act(seen, greedy=greedy))
        if not single:
            return action
        return action[0] if np.ndim(action[0]) else action[0].item()

    @torch.inference_mode()
    def value(self, obs: Any, *, action_mask: Any = None) -> Any:
        """The expected discounted return from one observation on, or an array of them for a batch."""
        seen, single = self._seen(obs, action_mask)
        value = self._policy.network.value(self._policy.seen(seen)).cpu().numpy()
        return value[0].item() if single else value

    @torch.inference_mode()
    def probabilities(self, obs: Any, *, action_mask: Any = None) -> np.ndarray:
        """The probability of each action, [actions] for one observation and [N, actions] for a batch.

        Raises UserError unless the environment has Discrete actions.
        """
        if not isinstance(self.spec.actions, DiscreteActions):
            raise UserError(
                f"probabilities are of Discrete actions; {self.spec.env_id} has {self.spec.actions}"
            )
        seen, single = self._seen(obs, action_mask)
        network = self._policy.network
        policy = network.distribution(network.policy_params(self._policy.seen(seen)))
        actions = torch.arange(self.spec.actions.count, device=self._policy.device)
        logp = torch.stack([policy.log_prob(action.expand(len(seen))) for action in actions], dim=1)
        return logp.exp().cpu().numpy()[0 if single else slice(None)]

    def _seen(self, obs: Any, action_mask: Any) -> tuple[np.ndarray, bool]:
        """Observations [N, …] as a network sees them, and whether it was only one."""
        batch, single = self._interface.batch(obs)
        return self._interface.observe(batch, action_mask), single


def new_run(
    config: str | Path | AnyConfig | None, env: Any, network: Any, changes: dict[str, Any]
) -> tuple[str, AnyConfig, UserObjects]:
    """The name and the config of a new run, and the objects that it is given."""
    custom, changes = user_objects(env, network, changes)
    if config is None:
        config = preset_for(changes.get("env"), custom)
    if isinstance(config, RunConfig):
        name, base = type(config).algorithm, config.pinned()
    elif isinstance(config, str | Path):
        name = Path(config).stem if str(config).endswith(".toml") else str(config)
        base = presets.load(str(config)).config
    else:
        raise ConfigError(
            f"config must be the name of a preset, the path of a preset file or a config; got {config!r}"
        )
    settings = custom.named_in(changed(base, changes))
    return name, planning.decided(settings, named_in(changes)), custom


def preset_for(env_id: str | None, custom: UserObjects) -> str:
    """The preset that an environment selects."""
    if custom.env is not None:
        made = custom.env.make(EnvConfig(), range(custom.env.num_envs or 1))
        custom.close(made)
        choice = presets.for_spec(made.spec)
    elif env_id is not None:
        choice = planning.choose_preset(env_id, EnvConfig())
    else:
        return presets.DEFAULT
    logger.info(f"preset {choice.preset}: {choice.reason}")
    return choice.preset


def path_of(given: Any, name: str) -> Path:
    if not isinstance(given, str | Path):
        raise ConfigError(f"{name} = {given!r}: must be a path")
    return Path(given)


def validate_callback(on_iteration: OnIteration | None) -> None:
    if on_iteration is not None and not callable(on_iteration):
        raise ConfigError(f"on_iteration = {on_iteration!r}: must be a function")


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """`config` with changed settings; what they name is imported, since the program names it."""
    settings = config_from_dict(type(config), presets.overlaid(config_to_dict(config), dict(changes)))
    planning.import_named(settings, named_in(changes))
    return settings


def named_in(changes: Mapping[str, Any]) -> set[str]:
    """The names of changed settings, such as num_envs and proximal.policy."""
    groups = {name: group for name, group in changes.items() if isinstance(group, Mapping)}
    return {*changes, *(f"{name}.{setting}" for name, group in groups.items() for setting in group)}


def user_objects(env: Any, network: Any, changes: Mapping[str, Any]) -> tuple[UserObjects, dict[str, Any]]:
    """The objects of the program, and all changes of settings as plain values, with those given by name."""
    if isinstance(env, str):
        changes, env = {**changes, "env": env}, None
    if isinstance(network, str):
        network = {"factory": network}
    if isinstance(network, Mapping) or is_dataclass(network):
        changes, network = {**changes, "network": network}, None
    custom = UserObjects.of(env, network)
    custom.validate_num_envs(changes.get("num_envs"))
    plain = {name: config_to_dict(value) if is_dataclass(value) else value for name, value in changes.items()}
    env_steps = plain.get("total_env_steps")
    if isinstance(env_steps, str):  # as on the command line, such as 2k or 1.5M
        try:
            plain["total_env_steps"] = whole_number(env_steps)
        except ValueError as error:
            raise ConfigError(f"total_env_steps {error}") from None
    return custom, plain


def evaluation_size(episodes: int, slots: int | None) -> dict[str, int]:
    """Settings for evaluating `episodes` episodes, each in its own slot if the environment allows it."""
    if slots is None:
        return {"num_envs": episodes, "episodes_per_env": 1}
    if episodes % slots:
        raise ConfigError(
            f"episodes = {episodes} must be a multiple of {slots}, the number of envs in the object"
        )
    return {"episodes_per_env": episodes // slots}


def trained_run(outcome: Outcome, custom: UserObjects) -> TrainedRun:
    if outcome.stopped_by is not None:
        raise Stopped(outcome.stopped_by, outcome.how_to_continue())
    run = TrainedRun(outcome.folder)
    run._custom = custom
    return run
