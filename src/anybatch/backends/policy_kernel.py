"""Acting with a policy, and the gradient of its loss, as one native call each."""

import math
from ctypes import byref
from typing import Protocol

import torch
from torch import Tensor

from anybatch import native
from anybatch.backends import structs
from anybatch.backends.structs import Outputs, Schedule, Workspace, columns, pointer
from anybatch.backends.threads import Threads
from anybatch.config import ObjectiveConfig
from anybatch.envs.protocol import EnvSpec
from anybatch.equations.objectives import log_clip_range
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


class PolicySamples(Protocol):
    """Columns of samples, by the names that native code has for them."""

    obs: Tensor
    action: Tensor
    behavior_logp: Tensor
    proximal_logp: Tensor
    proximal_params: Tensor
    proximal_log_std: Tensor | None
    advantage: Tensor
    value: Tensor
    value_target: Tensor


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
        value_encoder = (
            self._network.policy.encoder if network.shares_encoder else self._network.value_encoder
        )
        self._values = Outputs(self._library, value_encoder, self._network.value_head, dtype, threads)
        self._workspace = Workspace(
            lambda count: self._library.ppo_workspace(byref(self._network), count, threads),
            dtype,
        )

    def act(
        self, count: int, obs: int, noise: int, policy_params: int, action: int, value: int | None = None
    ) -> None:
        """Logits or means, the actions that `noise` chooses and, if requested, values, of `count` rows.

        All are addresses of contiguous rows: this is called at every env step, and making tensors costs time.
        """
        self._library.act(
            byref(self._network),
            count,
            obs,
            noise,
            policy_params,
            action,
            value,
            self._workspace.for_samples(count),
        )

    def values(self, obs: Tensor) -> Tensor:
        """[B] of contiguous observations [B, …]."""
        return self._values(obs).squeeze(1)

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

    def addresses(self, samples: PolicySamples) -> SamplesStruct:
        """Where the samples are in memory."""
        return SamplesStruct(
            obs=pointer(samples.obs),
            action=pointer(samples.action),
            behavior_logp=pointer(samples.behavior_logp),
            proximal_logp=pointer(samples.proximal_logp),
            proximal_params=pointer(samples.proximal_params),
            proximal_log_std=pointer(samples.proximal_log_std),
            advantage=pointer(samples.advantage),
            value=pointer(samples.value),
            value_target=pointer(samples.value_target),
        )

    def objective(self, config: ObjectiveConfig) -> ObjectiveStruct:
        """The numbers of the objective."""
        lower, upper = log_clip_range(config.clip)
        return ObjectiveStruct(
            lower_log_clip=lower,
            upper_log_clip=upper,
            log_max_importance=math.log(config.max_importance),
            kl_penalty=config.kl_penalty,
            entropy_coefficient=config.entropy_coefficient,
            value_coefficient=config.value_coefficient,
            value_clip=math.inf if config.value_clip is None else config.value_clip,
            exact_kl=config.kl == "exact",
        )

    def add_gradient(
        self, samples: SamplesStruct, objective: ObjectiveStruct, part: Tensor, count: float
    ) -> list[Tensor]:
        """Add the gradient of the samples `part`, divided by `count`, to the buffers.

        Returns the columns of the record, each [b].
        """
        part, objective.count = part.contiguous(), count
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
                self._workspace.for_samples(int(columns(schedule)["samples"].max())),
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
