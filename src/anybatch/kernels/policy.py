"""Acting with a policy, and the gradient of its loss, as one native call each."""

from ctypes import byref

import torch
from torch import Tensor

from anybatch import native
from anybatch.envs.protocol import EnvSpec
from anybatch.kernels import structs
from anybatch.kernels.structs import Schedule, pointer
from anybatch.kernels.threads import Threads
from anybatch.kernels.workspace import Workspace
from anybatch.native.layout import (
    MOST_LAYERS,
    ObjectiveStruct,
    RecordStruct,
    RolloutStruct,
    SamplesStruct,
    WeightsStruct,
)
from anybatch.networks.actor_critic import ActorCritic, Policy
from anybatch.networks.encoders import MinAtarEncoder, MLPEncoder


def unsupported(network: ActorCritic, spec: EnvSpec) -> str | None:
    """Why there is no native code for `network` on these observations, or None if there is."""
    policy = network.policy
    encoders = [policy.encoder, *([] if network.value_encoder is None else [network.value_encoder])]
    fitting = MLPEncoder if spec.obs_kind == "vector" else MinAtarEncoder
    if spec.obs_layout.is_packed or any(type(encoder) is not fitting for encoder in encoders):
        return "it supports only the encoders mlp, for plain vectors, and minatar"
    if any(len(encoder.layers) > MOST_LAYERS for encoder in encoders if isinstance(encoder, MLPEncoder)):
        return f"it supports at most {MOST_LAYERS} layers"
    if any(len(encoder.layers) == 0 for encoder in encoders if isinstance(encoder, MLPEncoder)):
        return "it needs at least one layer"
    if policy.masked_layout is not None or policy.action_counts is not None:
        return "it supports no action masks and no actions of several choices"
    if policy.head.weight.device.type != "cpu":
        return "it runs only on the CPU"
    return None


class PolicyKernel:
    """A policy and its value function, using the memory of `network`'s parameters and gradients.

    `proximal` is the averaged policy, if the proximal policy is one. Results do not depend on `threads`, the
    most that a call may use.
    """

    def __init__(self, network: ActorCritic, proximal: Policy | None, spec: EnvSpec, *, threads: int = 1):
        dtype = network.policy.head.weight.dtype
        self._collecting, self._adding, self._stepping = Threads(threads), Threads(threads), Threads(threads)
        self.network = network
        self._dtype = dtype
        self._library = native.library("float64" if dtype == torch.float64 else "float32")
        self._network = structs.actor_critic(network, spec.obs_shape)
        self._proximal = None if proximal is None else structs.policy(proximal, spec.obs_shape)
        self._workspace = Workspace(
            lambda count: self._library.ppo_workspace(byref(self._network), count, threads),
            dtype,
        )

    def act(
        self, count: int, obs: int, noise: int, location: int, action: int, value: int | None = None
    ) -> None:
        """Locations, the actions that `noise` chooses and, if requested, values of `count` observations.

        All are addresses of contiguous rows: this is called at every env step, and making tensors costs time.
        """
        self._library.act(
            byref(self._network),
            count,
            obs,
            noise,
            location,
            action,
            value,
            self._workspace.for_samples(count),
        )

    def collect(self, rollout: RolloutStruct) -> None:
        """Act and step envs of native code in turns, for a whole rollout."""
        self._collecting.run(
            rollout.num_envs * rollout.num_steps,
            lambda threads: self._library.ppo_rollout(
                byref(self._network),
                byref(rollout),
                self._workspace.for_samples(rollout.num_envs),
                threads,
            ),
        )

    def add_gradient(self, samples: SamplesStruct, objective: ObjectiveStruct, part: Tensor) -> list[Tensor]:
        """Add the gradient of the samples `part` to the buffers; the columns of the record, each [b]."""
        part = part.contiguous()
        record = self._record(len(part))
        self._adding.run(
            len(part),
            lambda threads: self._library.ppo_gradient(
                byref(self._network),
                None if self._proximal is None else byref(self._proximal),
                byref(samples),
                byref(objective),
                pointer(part),
                len(part),
                byref(_addresses(record)),
                self._workspace.for_samples(len(part)),
                threads,
            ),
        )
        return list(record.unbind())

    def take_steps(
        self,
        samples: SamplesStruct,
        objective: ObjectiveStruct,
        indices: Tensor,
        weights: WeightsStruct,
        schedule: Schedule,
    ) -> tuple[int, Tensor]:
        """Take the gradient steps of `schedule` on consecutive parts of `indices`.

        Returns how many were taken, those before the first non-finite gradient, and the record: [columns, b].
        """
        record = self._record(len(indices))
        taken: int = self._stepping.run(
            len(indices),
            lambda threads: self._library.ppo_steps(
                byref(self._network),
                None if self._proximal is None else byref(self._proximal),
                byref(samples),
                byref(objective),
                pointer(indices),
                byref(_addresses(record)),
                self._workspace.for_samples(max(step.samples for step in schedule)),
                byref(weights),
                schedule,
                len(schedule),
                threads,
            ),
        )
        return taken, record

    def _record(self, count: int) -> Tensor:
        return torch.empty(len(RecordStruct._fields_), count, dtype=self._dtype)


def _addresses(record: Tensor) -> RecordStruct:
    start, row = record.data_ptr(), record.shape[1] * record.element_size()
    return RecordStruct(*(start + number * row for number in range(len(record))))
