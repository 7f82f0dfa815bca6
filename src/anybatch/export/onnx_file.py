"""Writing a policy as an ONNX file, which is compared with torch before it is put in place."""

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

from anybatch.acting.evaluation import Player
from anybatch.config import AnyConfig
from anybatch.envs.protocol import EnvSpec
from anybatch.errors import DiskError, UserError, cause_of
from anybatch.evaluating import opened_env, trained_player
from anybatch.export.onnx_check import Agreement, compare, observations_of_play
from anybatch.export.policy_graph import PolicyGraph, input_names, inputs_of, output_names
from anybatch.runs import folder as run_folder
from anybatch.runs.record import NEWEST, RunRecord
from anybatch.storage import safe_files
from anybatch.text import readable
from anybatch.user_objects import NO_OBJECTS, UserObjects

SUFFIX = ".onnx"
EXAMPLES = 3
"""Number of observations for tracing the graph. Not 1, which a trace would treat as a constant."""


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
) -> OnnxFile:
    """Write the policy of a run's checkpoint to `out`, if onnxruntime agrees with torch."""
    if out.suffix.lower() != SUFFIX:
        raise UserError(f"--onnx {out}: the file must end in {SUFFIX}")
    require_packages()
    loaded = record.load_checkpoint(checkpoint, with_segments=False)
    with opened_env(config, custom) as env:
        player = on_cpu(trained_player(loaded, config, env.spec, custom))
        obs = observations_of_play(player, env)
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
            write(player, env.spec, aside, facts)
            agreement = compare(aside, player, env.spec, obs)
    except OSError as error:
        raise DiskError(f"{out} could not be written: {cause_of(error)}") from error
    names = tuple(input_names(env.spec.obs_layout)), tuple(output_names(player.network, env.spec))
    return OnnxFile(out, loaded.env_steps, *names, agreement)


def require_packages() -> None:
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"ONNX needs the package {error.name}: install it with pip install 'anybatch[onnx]'"
        ) from None


def on_cpu(player: Player) -> Player:
    """The same policy in single precision on the CPU, as in an ONNX file."""
    cpu = torch.device("cpu")
    network = copy.deepcopy(player.network).to(device=cpu, dtype=torch.float32).eval()
    return Player(network, player.normalizer, cpu, player.generator, player.greedy)


def write(player: Player, spec: EnvSpec, path: Path, facts: dict[str, str]) -> None:
    """Trace the policy with torch.export and write its graph."""
    graph = PolicyGraph(player.network, player.normalizer, spec).eval()
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
                output_names=output_names(player.network, spec),
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
