"""Comparison of an ONNX file with its policy, on observations from the policy's own episodes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from anybatch.acting.evaluation import Player
from anybatch.backends import Actor
from anybatch.envs.protocol import BoxActions, EnvSpec, VectorEnv
from anybatch.errors import UserError
from anybatch.export.policy_graph import inputs_of
from anybatch.networks.distributions import FORBIDDEN, in_rows

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


class OnnxPlayer:
    """Runs a policy from its ONNX file, in place of a `Player`."""

    def __init__(self, path: Path, spec: EnvSpec) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._layout = spec.obs_layout
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.greedy = True

    def outputs(self, obs: np.ndarray) -> list[np.ndarray]:
        """All outputs of the graph for observations [N, …]: the greedy actions first."""
        return [np.asarray(output) for output in self._session.run(None, inputs_of(self._layout, obs))]

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self.outputs(obs)[0]


def observations_of_play(player: Player, env: VectorEnv) -> np.ndarray:
    """Observations [M, …] that the policy encounters when it samples its actions."""
    seen = [env.reset()]
    while len(seen) * env.spec.num_envs < CHECKED_OBSERVATIONS:
        seen.append(env.step(player.act(seen[-1], greedy=False)).obs)
    return np.concatenate([np.array(obs) for obs in seen])[:CHECKED_OBSERVATIONS]


def compare(path: Path, player: Player, spec: EnvSpec, obs: np.ndarray) -> Agreement:
    """The agreement on observations [M, …], one at a time for some and as a batch for all.

    Raises UserError if it is not within the tolerance.
    """
    exported = OnnxPlayer(path, spec)
    location = located(player, obs)
    action, given, *_ = exported.outputs(obs)
    alone = np.concatenate([exported.outputs(obs[place : place + 1])[1] for place in range(min(8, len(obs)))])
    difference = max(apart(given, location), apart(alone, location[: len(alone)]))
    wanted = player.act(obs, greedy=True)
    if isinstance(spec.actions, BoxActions):
        difference = max(difference, apart(action, np.clip(wanted, spec.actions.low, spec.actions.high)))
    if not difference <= TOLERANCE:
        raise UserError(
            f"this network cannot be expressed in ONNX: onnxruntime differs from torch by {difference:.2g}"
        )
    is_choice = not isinstance(spec.actions, BoxActions)
    others = differing_actions(player.network, location, action, wanted) if is_choice else 0
    return Agreement(len(obs), difference, others)


@torch.inference_mode()
def located(player: Player, obs: np.ndarray) -> np.ndarray:
    """Logits, means or action values [M, A] by torch."""
    seen = torch.from_numpy(obs if player.normalizer is None else player.normalizer.normalize(obs))
    return player.network.locate(seen.float() if seen.is_floating_point() else seen).numpy()


def apart(given: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative if the expected value is above 1."""
    return float((np.abs(given - wanted) / np.maximum(1.0, np.abs(wanted))).max())


def differing_actions(network: Actor, location: np.ndarray, action: np.ndarray, wanted: np.ndarray) -> int:
    """How many actions differ. Raises UserError if one of them is not a near-tie."""
    counts = network.action_counts or (location.shape[-1],)
    choices = in_rows(torch.from_numpy(location), counts, FORBIDDEN).numpy()

    def values(taken: np.ndarray) -> np.ndarray:
        return np.take_along_axis(choices, taken.reshape(len(taken), -1, 1), axis=2)[..., 0]

    best, taken = values(wanted), values(action)
    if (np.abs(best - taken) > NEAR_TIE * np.maximum(1.0, np.abs(best))).any():
        raise UserError("this network cannot be expressed in ONNX: onnxruntime chooses other actions")
    return int((action != wanted).sum())
