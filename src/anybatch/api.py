"""The Python API: train, resume, load, plan and tune."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from anybatch import envs, presets, session, user_modules
from anybatch.acting.evaluation import Evaluation, InferencePolicy
from anybatch.config import AnyConfig, EnvConfig, RunConfig
from anybatch.config.serialization import config_from_dict, config_to_dict
from anybatch.dial import Plan, plan_table
from anybatch.envs.ids import refuse_unknown
from anybatch.envs.interface import Interface, interface_of
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import ConfigError, UserError
from anybatch.export import onnx_file
from anybatch.export.onnx_file import OnnxFile
from anybatch.lab.studies import duration
from anybatch.lab.tuning import tune as tuning
from anybatch.lab.tuning.outcome import Outcome as TunedPreset
from anybatch.lab.tuning.plan import CHECK_SEEDS, MARGIN, TUNING_SEEDS, Request
from anybatch.lab.tuning.space import FIXED
from anybatch.networks import custom as custom_networks
from anybatch.planning import decoupled_by_default
from anybatch.runs import advice as advice_report
from anybatch.runs import plan_text
from anybatch.runs.advice import Advice
from anybatch.runs.display import QUIET, Output
from anybatch.runs.metrics import METRICS, meant
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.runs.stop import Stopped
from anybatch.session import Outcome
from anybatch.session.custom import NOTHING_OWN, OwnParts
from anybatch.session.evaluating import evaluation_env, trained_policy
from anybatch.session.training import ShowPlan

Config = TypeVar("Config", bound=AnyConfig)
PathLike = str | Path


def train(
    config: str | Path | AnyConfig | None = None,
    *,
    env: Any = None,
    network: Any = None,
    run_dir: PathLike = "runs",
    progress: bool = False,
    **changes: Any,
) -> "TrainedRun":
    """Train a policy in a new run folder under `run_dir`.

    `config` is the name of a preset, the path of a preset file, or a config; without it, the environment
    selects the preset. `changes` are settings that override it, by their names in the config, such as
    num_envs=16 or optimizer={"learning_rate": 1e-3}. If they change the batch, the numbers that depend on it
    follow by the rules of the dial.

    `env` is an environment's id, a Gymnasium env or vector env, a function that makes a single Gymnasium env,
    or an object with the four methods of `VectorEnv`; an object fixes num_envs. `network` is a torch module,
    or a function from the environment's spec to one: an encoder, to which heads are added, or a whole
    ActorCritic or QNetwork. It can also be the name of such a function, my_package:make_network, or settings
    of the library's networks.

    With `progress`, the run shows what the command line shows; otherwise it is quiet, and messages go to the
    logger `anybatch`. A stop signal lets the run save first and then raises KeyboardInterrupt.
    """
    own, named = own_parts(env, network)
    own.refuse_other_num_envs(changes.get("num_envs"))
    preset, base = base_config(config, named.get("env"), own)
    output = Output(shown=progress)
    settings = decoupled_by_default(
        own.named_in(changed(base, named | changes)), output.say, policy_is_chosen=names_policy(changes)
    )
    outcome = session.train(
        settings,
        preset=preset,
        base=Path(run_dir),
        show_plan=show_plan(progress),
        output=output,
        own=own,
    )
    return trained_run(outcome, own)


def resume(
    folder: PathLike, *, env: Any = None, network: Any = None, progress: bool = False, **changes: Any
) -> "TrainedRun":
    """Continue a run from its newest good checkpoint, for example at another batch: num_envs=64.

    `env` and `network` must be passed again if the run was trained with objects, and `network` also if it is
    the name of a function.
    """
    own, named = own_parts(env, network)
    own.refuse_other_num_envs(changes.get("num_envs"))
    record = RunRecord(Path(folder))
    output = Output(shown=progress)
    settings = decoupled_by_default(
        own.named_in(changed(record.config, named | changes)),
        output.say,
        policy_is_chosen=names_policy(changes) or record.config.collection is not None,
    )
    outcome = session.resume(record, settings, show_plan=show_plan(progress), output=output, own=own)
    return trained_run(outcome, own)


def load(folder: PathLike, *, env: Any = None, network: Any = None) -> "Agent":
    """The policy of a run's newest good checkpoint.

    `env` and `network` must be passed again if the run was trained with objects, and `network` also if it is
    the name of a function.
    """
    own, named = own_parts(env, network)
    record = RunRecord(Path(folder))
    config = own.named_in(changed(record.config, named | {"evaluation": {"num_envs": 1}}))
    loaded = record.load_checkpoint(QUIET.say, with_segments=False)
    made = evaluation_env(config, own)
    try:
        policy = trained_policy(loaded, config, made.spec, own)
        return Agent(policy, made.spec, interface_of(made), loaded.env_steps)
    finally:
        own.close(made)


def plan(
    config: str | Path | AnyConfig | None = None, *, env: Any = None, network: Any = None, **changes: Any
) -> "PlanView":
    """The batches of a run and every number that follows from them, without training.

    The arguments are those of `train`.
    """
    own, named = own_parts(env, network)
    own.refuse_other_num_envs(changes.get("num_envs"))
    _, base = base_config(config, named.get("env"), own)
    settings = decoupled_by_default(
        own.named_in(changed(base, named | changes)), QUIET.say, policy_is_chosen=names_policy(changes)
    )
    if own.env is None:
        refuse_unknown(settings.env, settings.env_config)
    settings = settings.on_ranks(1)
    return PlanView(settings, session.plan(settings))


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
    seeds: Iterable[int] = TUNING_SEEDS,
    check_seeds: int = CHECK_SEEDS,
    margin: float = MARGIN,
    search: Mapping[str, tuple[float, float] | None] | None = None,
    out: PathLike | None = None,
    progress: bool = False,
) -> "TunedPreset":
    """Tune a preset's numbers with `num_envs` envs, and check the best of `trials` on fresh seeds.

    Arguments correspond to the flags of `anybatch tune` (extra `tune`). `preset` is a name or the path of a
    file; by default the environment selects it. `search` holds changed ranges, such as {"learning-rate":
    (1e-4, 1e-2), "clip": None}, where None keeps the preset's number. A second call with the same `out`
    continues the first.

    Trials run in worker processes, so an environment must be named, not passed as an object. `network` is the
    preset's network.factory, which must be passed if it is a function. The outcome holds the best trial, what
    mattered, the verdict of the check, and `preset_file` for `train(preset_file)`.
    """
    if env is not None and not isinstance(env, str):
        raise ConfigError("env must be the id of an environment: trials run in other processes")
    if env is not None:
        envs.import_as_named(env)
    if network is not None:
        custom_networks.import_as_named(network)
    ranges = (search or {}).items()
    if preset is None:
        preset = preset_for(env, NOTHING_OWN)
    request = Request(
        preset=str(preset),
        env=env,
        trials=trials,
        num_envs=num_envs,
        train_at=train_at,
        env_steps=env_steps,
        seeds=tuple(seeds),
        check_seeds=check_seeds,
        margin=margin,
        search=tuple(f"{name}={FIXED if ends is None else '{}..{}'.format(*ends)}" for name, ends in ranges),
        budget_seconds=duration.of_budget(budget),
    )
    return tuning.tune(
        request, out=None if out is None else Path(out), jobs=jobs, output=Output(shown=progress)
    )


def names_policy(changes: Mapping[str, Any]) -> bool:
    """Whether the program chose the proximal policy."""
    proximal = changes.get("proximal", {})
    return is_dataclass(proximal) or "policy" in proximal


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
        self._record = RunRecord(Path(folder))
        self._own, _ = own_parts(env, network)

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
        return PlanView(self.config, session.plan(self.config))

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
        self, episodes: int | None = None, *, greedy: bool | None = None, progress: bool = False
    ) -> Evaluation:
        """Evaluate the newest checkpoint on `episodes` episodes, by default as many as the run's config
        says."""
        settings: dict[str, Any] = {} if greedy is None else {"greedy": greedy}
        if episodes is not None:
            slots = self._own.env.num_envs if self._own.env is not None else None
            settings |= evaluation_size(episodes, slots)
        config = changed(self.config, {"evaluation": settings})
        played, _ = session.evaluate_run(self._record, config, output=Output(shown=progress), own=self._own)
        return played

    def export_onnx(self, path: PathLike, *, checkpoint: str = NEWEST) -> OnnxFile:
        """Write the policy of a checkpoint as an ONNX file, after comparing it with torch (extra `onnx`).

        `checkpoint` is newest, best or the env steps of a checkpoint.
        """
        return onnx_file.export_run(
            self._record, self.config, Path(path), output=QUIET, own=self._own, checkpoint=checkpoint
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

    def act(self, obs: Any, *, greedy: bool = True, action_mask: Any = None) -> Any:
        """An action for one observation, or an array of actions for a batch of observations.

        `greedy` takes the most probable action, or the mean of continuous ones; otherwise actions are
        sampled. `action_mask` is for environments that provide masks in their infos. Raises EnvError, a
        ValueError, if an observation is not one of the environment.
        """
        batch, single = self._interface.batch(obs)
        seen = self._interface.observe(batch, action_mask)
        action = self._interface.to_engine(self._policy.act(seen, greedy=greedy))
        if not single:
            return action
        return action[0] if np.ndim(action[0]) else action[0].item()


def base_config(
    config: str | Path | AnyConfig | None, env_id: str | None, own: OwnParts
) -> tuple[str, AnyConfig]:
    """The name of a config and the config, whose batch is pinned as the tuned batch."""
    if config is None:
        config = preset_for(env_id, own)
    if isinstance(config, RunConfig):
        return type(config).algorithm, config.pinned()
    if not isinstance(config, str | Path):
        raise ConfigError(
            f"config must be the name of a preset, the path of a preset file or a config; got {config!r}"
        )
    name = str(config)
    return Path(name).stem if name.endswith(".toml") else name, presets.load(name).config


def preset_for(env_id: str | None, own: OwnParts) -> str:
    """The preset that an environment selects."""
    if own.env is not None:
        made = own.env.make(EnvConfig(), range(own.env.num_envs or 1))
        own.close(made)
        return presets.for_spec(made.spec).preset
    return presets.DEFAULT if env_id is None else presets.for_env(env_id, EnvConfig()).preset


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """`config` with changed settings; a group takes a dict or a whole config group."""
    plain = {name: config_to_dict(value) if is_dataclass(value) else value for name, value in changes.items()}
    settings = config_from_dict(type(config), presets.overlaid(config_to_dict(config), plain))
    if "num_envs" in changes:
        settings.refuse_named_num_envs()
    if "ray_address" in changes and settings.ray_address is not None:
        user_modules.name("ray_address", settings.ray_address)
    return settings


def own_parts(env: Any, network: Any) -> tuple[OwnParts, dict[str, Any]]:
    """Objects of the program, and the settings for what was given by name."""
    named: dict[str, Any] = {}
    if isinstance(env, str):
        envs.import_as_named(env)
        named["env"], env = env, None
    if isinstance(network, str):
        network = {"factory": network}
    if isinstance(network, Mapping) or is_dataclass(network):
        settings = config_to_dict(network) if is_dataclass(network) else network
        if settings.get("factory") is not None:
            custom_networks.import_as_named(settings["factory"])
        named["network"], network = settings, None
    return OwnParts.of(env, network), named


def evaluation_size(episodes: int, slots: int | None) -> dict[str, int]:
    """Settings for evaluating `episodes` episodes, each in its own slot if the environment allows it."""
    if slots is None:
        return {"num_envs": episodes, "episodes_per_env": 1}
    if episodes % slots:
        raise ConfigError(
            f"episodes = {episodes} must be a multiple of {slots}, the number of envs in the object"
        )
    return {"episodes_per_env": episodes // slots}


def show_plan(progress: bool) -> ShowPlan:
    return plan_text.show if progress else lambda *_: None


def trained_run(outcome: Outcome, own: OwnParts) -> TrainedRun:
    if outcome.stopped_by is not None:
        raise Stopped(outcome.stopped_by, outcome.how_to_continue())
    run = TrainedRun(outcome.folder)
    run._own = own
    return run
