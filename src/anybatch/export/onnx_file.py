"""Writing a policy as an ONNX file, which is compared with torch before it is put in place.

The comparison is on observations from the policy's own episodes.
"""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anybatch.acting.evaluation import InferencePolicy
from anybatch.backends import Actor
from anybatch.config import AnyConfig
from anybatch.envs.protocol import BoxActions, EnvSpec, VectorEnv
from anybatch.errors import DiskError, UserError, cause_of
from anybatch.evaluating import opened_env, trained_policy
from anybatch.export.policy_graph import PolicyGraph, input_names, inputs_of, output_names
from anybatch.networks.distributions import FORBIDDEN, in_rows
from anybatch.runs import folder as run_folder
from anybatch.runs.display import QUIET, Display, Output
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.storage import safe_files
from anybatch.text import readable
from anybatch.user_objects import NO_OBJECTS, UserObjects

SUFFIX = ".onnx"
EXAMPLES = 3
"""Number of observations for tracing the graph. Not 1, which a trace would treat as a constant."""
CHECKED_OBSERVATIONS = 256
TOLERANCE = 1e-5
"""Largest allowed difference of an output, relative if the output is above 1."""
NEAR_TIE = 4 * TOLERANCE
"""Actions whose logits or values are this close count as equal."""


@dataclass(frozen=True)
class Agreement:
    """The agreement of onnxruntime and torch."""

    observations: int
    largest_difference: float
    """Largest difference of logits, means or action values; relative if they are above 1."""
    other_actions: int
    """Greedy actions that differ, all of them near-ties."""

    def sentence(self) -> str:
        ties = f" except for {self.other_actions} near-ties" if self.other_actions else ""
        return (
            f"equal to torch within {self.largest_difference:.1e} on {self.observations:,} observations, "
            f"greedy actions equal{ties}"
        )


class OnnxPolicy:
    """Runs a policy from its ONNX file, in place of a `InferencePolicy`."""

    def __init__(self, path: Path, spec: EnvSpec) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._layout, self._is_continuous = spec.obs_layout, spec.is_continuous
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.greedy = True

    def outputs(self, obs: np.ndarray) -> list[np.ndarray]:
        """All outputs of the graph for observations [N, …]: the greedy actions first."""
        return [np.asarray(output) for output in self._session.run(None, inputs_of(self._layout, obs))]

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The greedy actions of the policy, which an environment of ours maps to its bounds by itself."""
        action, policy_params, *_ = self.outputs(obs)
        return policy_params if self._is_continuous else action


def observations_of_play(policy: InferencePolicy, env: VectorEnv, display: Display) -> np.ndarray:
    """Observations [M, …] that the policy encounters when it samples its actions."""
    seen = [env.reset()]
    while len(seen) * env.spec.num_envs < CHECKED_OBSERVATIONS:
        seen.append(env.step(policy.act(seen[-1], greedy=False)).obs)
        display.update(len(seen) * env.spec.num_envs, {})
    return np.concatenate([np.array(obs) for obs in seen])[:CHECKED_OBSERVATIONS]


def compare(path: Path, policy: InferencePolicy, spec: EnvSpec, obs: np.ndarray) -> Agreement:
    """The agreement on observations [M, …], one at a time for some and as a batch for all.

    Raises UserError if it is not within the tolerance.
    """
    exported = OnnxPolicy(path, spec)
    policy_params = torch_policy_params(policy, obs)
    action, given, *_ = exported.outputs(obs)
    alone = np.concatenate([exported.outputs(obs[place : place + 1])[1] for place in range(min(8, len(obs)))])
    difference = max(apart(given, policy_params), apart(alone, policy_params[: len(alone)]))
    wanted = policy.act(obs, greedy=True)
    if isinstance(spec.actions, BoxActions):
        difference = max(difference, apart(action, spec.actions.to_engine(wanted)))
    if not difference <= TOLERANCE:
        raise UserError(
            f"this network cannot be expressed in ONNX: onnxruntime differs from torch by {difference:.2g}"
        )
    others = 0 if spec.is_continuous else differing_actions(policy.network, policy_params, action, wanted)
    return Agreement(len(obs), difference, others)


@torch.inference_mode()
def torch_policy_params(policy: InferencePolicy, obs: np.ndarray) -> np.ndarray:
    """Logits, means or action values [M, A] by torch."""
    seen = torch.from_numpy(obs if policy.normalizer is None else policy.normalizer.normalize(obs))
    return policy.network.policy_params(seen.float() if seen.is_floating_point() else seen).numpy()


def apart(given: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative if the expected value is above 1."""
    return float((np.abs(given - wanted) / np.maximum(1.0, np.abs(wanted))).max())


def differing_actions(
    network: Actor, policy_params: np.ndarray, action: np.ndarray, wanted: np.ndarray
) -> int:
    """How many actions differ. Raises UserError if one of them is not a near-tie."""
    counts = network.action_counts or (policy_params.shape[-1],)
    choices = in_rows(torch.from_numpy(policy_params), counts, FORBIDDEN).numpy()

    def values(taken: np.ndarray) -> np.ndarray:
        return np.take_along_axis(choices, taken.reshape(len(taken), -1, 1), axis=2)[..., 0]

    best, taken = values(wanted), values(action)
    if (np.abs(best - taken) > NEAR_TIE * np.maximum(1.0, np.abs(best))).any():
        raise UserError("this network cannot be expressed in ONNX: onnxruntime chooses other actions")
    return int((action != wanted).sum())


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file, and its agreement with its policy."""

    path: Path
    env_steps: int
    """Env steps of its checkpoint."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    agreement: Agreement

    def sentence(self) -> str:
        return (
            f"{self.path}: {readable(self.path.stat().st_size)}, from {', '.join(self.inputs)} to "
            f"{', '.join(self.outputs)}; policy after {self.env_steps:,} env steps, "
            f"{self.agreement.sentence()}"
        )


def export_run(
    record: RunRecord,
    config: AnyConfig,
    out: Path,
    *,
    custom: UserObjects = NO_OBJECTS,
    checkpoint: str = NEWEST,
    output: Output = QUIET,
) -> OnnxFile:
    """Write the policy of a run's checkpoint to `out`, if onnxruntime agrees with torch."""
    if out.suffix.lower() != SUFFIX:
        raise UserError(f"--onnx {out}: the file must end in {SUFFIX}")
    require_packages()
    loaded = record.load_checkpoint(checkpoint, with_segments=False)
    with opened_env(config, custom) as env:
        policy = on_cpu(trained_policy(loaded, config, env.spec, custom))
        title = f"observations of {config.env}"
        with output.display(CHECKED_OBSERVATIONS, title, unit="steps", transient=True) as display:
            obs = observations_of_play(policy, env, display)
    facts = {
        "anybatch_version": run_folder.version_of("anybatch") or "",
        "algorithm": config.algorithm,
        "env": config.env,
        "engine": env.spec.engine,
        "actions": str(env.spec.actions),
        "env_steps": str(loaded.env_steps),
    }
    try:
        with safe_files.written_aside(out) as aside:
            write(policy, env.spec, aside, facts)
            agreement = compare(aside, policy, env.spec, obs)
    except OSError as error:
        raise DiskError(f"{out} could not be written: {cause_of(error)}") from error
    names = tuple(input_names(env.spec.obs_layout)), tuple(output_names(policy.network, env.spec))
    return OnnxFile(out, loaded.env_steps, *names, agreement)


def require_packages() -> None:
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"ONNX needs the package {error.name}: install it with pip install 'anybatch[onnx]'"
        ) from None


def on_cpu(policy: InferencePolicy) -> InferencePolicy:
    """The same policy in single precision on the CPU, as in an ONNX file."""
    cpu = torch.device("cpu")
    network = copy.deepcopy(policy.network).to(device=cpu, dtype=torch.float32).eval()
    return InferencePolicy(network, policy.normalizer, cpu, policy.generator, policy.greedy)


def write(policy: InferencePolicy, spec: EnvSpec, path: Path, facts: dict[str, str]) -> None:
    """Trace the policy with torch.export and write its graph."""
    graph = PolicyGraph(policy.network, policy.normalizer, spec).eval()
    layout = spec.obs_layout
    examples = inputs_of(layout, np.zeros((EXAMPLES, *spec.obs_shape), dtype=spec.obs_dtype))
    batch = torch.export.Dim("batch")
    try:
        with quiet_exporter():
            program: Any = torch.onnx.export(
                graph,
                tuple(torch.from_numpy(example) for example in examples.values()),
                dynamo=True,
                verbose=False,
                input_names=list(examples),
                output_names=output_names(policy.network, spec),
                dynamic_shapes={"inputs": tuple({0: batch} for _ in examples)},
            )
    except torch.onnx.OnnxExporterError as error:
        raise UserError(f"this network cannot be expressed in ONNX: {reason(error)}") from error
    program.model.metadata_props.update(facts)
    program.save(path)


def reason(error: BaseException) -> str:
    """The first line of the innermost cause, which names what is not supported."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UserError):
        raise error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence the exporter's own messages, such as that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
