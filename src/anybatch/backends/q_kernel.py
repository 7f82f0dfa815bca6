"""Acting with action values, and the gradient of their errors, as one native call each."""

from ctypes import byref
from typing import Protocol

import torch
from torch import Tensor, nn

from anybatch import native
from anybatch.backends import structs
from anybatch.backends.structs import Outputs, Schedule, Workspace, columns, pointer
from anybatch.backends.threads import Threads
from anybatch.config.pqn import QLearningConfig
from anybatch.envs.protocol import EnvSpec
from anybatch.native.layout import MOST_LAYERS, QSamplesStruct, RolloutStruct, WeightsStruct
from anybatch.networks.q_network import NormalizedLayers, NormalizedMinAtar, QNetwork, Scaled


class ValueSamples(Protocol):
    """Columns of samples, by the names that native code has for them."""

    obs: Tensor
    action: Tensor
    target: Tensor


def unsupported(network: QNetwork, spec: EnvSpec) -> str | None:
    """Why there is no native code for `network` on these observations, or None if there is."""
    fitting = Scaled if spec.obs_kind == "vector" else NormalizedMinAtar
    if spec.obs_layout.is_packed or type(network.encoder) is not fitting:
        return "it supports only the encoders mlp, for plain vectors, and minatar"
    if type(network.trunk) is not NormalizedLayers or type(network.head) is not nn.Linear:
        return "it supports no residual blocks"
    if len(network.trunk.layers) > MOST_LAYERS:
        return f"it supports at most {MOST_LAYERS} layers"
    if len(network.trunk.layers) == 0 and spec.obs_kind == "vector":
        return "it needs at least one layer"
    if network.masked_layout is not None:
        return "it supports no action masks"
    if network.head.weight.device.type != "cpu":
        return "it runs only on the CPU"
    return None


class QKernel:
    """Action values, using the memory of `network`'s parameters and gradients.

    Results do not depend on `threads`, the most that a call may use.
    """

    def __init__(self, network: QNetwork, spec: EnvSpec, *, threads: int = 1):
        dtype = next(network.parameters()).dtype
        self._collecting, self._adding, self._stepping = Threads(threads), Threads(threads), Threads(threads)
        self._dtype = dtype
        self.network = network
        self._library = native.library("float64" if dtype == torch.float64 else "float32")
        self._network = structs.q_network(network, spec.obs_shape)
        self._outputs = Outputs(self._library, self._network.encoder, self._network.head, dtype, threads)
        self._workspace = Workspace(
            lambda count: self._library.q_workspace(byref(self._network), count, threads),
            dtype,
        )

    def act(self, count: int, obs: int, noise: int, policy_params: int, action: int, value: int) -> None:
        """Action values, chosen actions and values of the best actions for `count` observations.

        All are addresses of contiguous rows: this is called at every env step, and making tensors costs time.
        """
        self._library.q_act(
            byref(self._network),
            self.network.epsilon,
            count,
            obs,
            noise,
            policy_params,
            action,
            value,
            self._workspace.for_samples(count),
        )

    def values(self, obs: Tensor) -> Tensor:
        """Values [B] of the best actions, of contiguous observations [B, …]."""
        return self._outputs(obs).amax(1)

    def collect(self, rollout: RolloutStruct) -> None:
        """Act and step envs of native code in turns, for a whole rollout."""
        self._collecting.run(
            rollout.num_envs * rollout.num_steps,
            lambda threads: self._library.q_rollout(
                byref(self._network),
                self.network.epsilon,
                byref(rollout),
                self._workspace.for_samples(rollout.num_envs),
                threads,
            ),
        )

    def addresses(self, samples: ValueSamples) -> QSamplesStruct:
        """Where the samples are in memory."""
        return QSamplesStruct(pointer(samples.obs), pointer(samples.action), pointer(samples.target))

    def objective(self, config: QLearningConfig) -> float:
        """The number of the objective."""
        return config.loss_coefficient

    def add_gradient(
        self, samples: QSamplesStruct, coefficient: float, part: Tensor, count: float
    ) -> list[Tensor]:
        """Add the gradient of `coefficient` ÷ `count` × squared errors; errors and values, each [b]."""
        part = part.contiguous()
        record = torch.empty(2, len(part), dtype=self._dtype)
        start = record.data_ptr()
        self._adding.run(
            len(part),
            lambda threads: self._library.q_gradient(
                byref(self._network),
                byref(samples),
                coefficient,
                count,
                pointer(part),
                len(part),
                start,
                start + len(part) * record.element_size(),
                self._workspace.for_samples(len(part)),
                threads,
            ),
        )
        return list(record.unbind())

    def take_steps(
        self,
        samples: QSamplesStruct,
        coefficient: float,
        indices: Tensor,
        weights: WeightsStruct,
        schedule: Schedule,
    ) -> tuple[int, Tensor]:
        """Take the gradient steps of `schedule` on consecutive parts of `indices`.

        Returns how many were taken, those before the first non-finite gradient; errors and values, [2, b].
        """
        record = torch.empty(2, len(indices), dtype=self._dtype)
        taken: int = self._stepping.run(
            len(indices),
            lambda threads: self._library.q_steps(
                byref(self._network),
                byref(samples),
                coefficient,
                pointer(indices),
                pointer(record[0]),
                pointer(record[1]),
                self._workspace.for_samples(int(columns(schedule)["samples"].max())),
                byref(weights),
                schedule,
                len(schedule),
                threads,
            ),
        )
        return taken, record
