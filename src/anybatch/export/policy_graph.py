"""A policy as one graph from the parts of an observation to actions, for ONNX."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.backends import Actor
from anybatch.envs.layout import ObsLayout
from anybatch.envs.protocol import ActionMap, BoxActions, EnvSpec
from anybatch.errors import UserError
from anybatch.networks.distributions import forbid
from anybatch.networks.packed import PackedImage, PackedNumbers

OBSERVATION, VECTOR, IMAGE, MASK = "observation", "vector", "image", "action_mask"


def input_names(layout: ObsLayout) -> list[str]:
    """The inputs of the graph: the observation, or its vector and its image, and the mask if there is one.

    Masks are always separate inputs, however the environment provides them.
    """
    parts = [VECTOR, IMAGE] if layout.vector_width and layout.image_shape is not None else [OBSERVATION]
    return [*parts, *([MASK] if layout.mask_width else [])]


def inputs_of(layout: ObsLayout, obs: np.ndarray) -> dict[str, np.ndarray]:
    """Packed observations [N, …] as the inputs of the graph."""
    parts: list[np.ndarray] = []
    if layout.vector_width:
        parts.append(layout.vector_of(obs))
    if layout.image_shape is not None:
        parts.append(layout.image_of(obs))
    if layout.mask_width:
        parts.append(layout.mask_of(obs))
    return dict(zip(input_names(layout), parts, strict=True))


def output_names(network: Actor, spec: EnvSpec) -> list[str]:
    """The greedy action, and what sampling needs: logits, means and deviations, or action values."""
    return ["action", "mean", "std"] if spec.is_continuous else ["action", network.params_name]


class PolicyGraph(nn.Module):
    """Normalizer, network and greedy action, from one input tensor per part."""

    def __init__(self, network: Actor, normalizer: ObservationNormalizer | None, spec: EnvSpec) -> None:
        super().__init__()
        self.network = network
        self.spec = spec
        self.layout = spec.obs_layout
        self.normalize = None if normalizer is None else NormalizeVector(normalizer)
        self.to_engine = MapActions(spec.actions.to_engine) if isinstance(spec.actions, BoxActions) else None

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The greedy action, counted from 0 or within its bounds, and the other outputs of `output_names`."""
        policy_params = self.policy_params(inputs)
        if self.to_engine is not None:
            log_std = self.network.distribution(policy_params).log_std
            assert log_std is not None
            return self.to_engine(policy_params), policy_params, log_std.exp().expand_as(policy_params)
        counts = self.network.action_counts
        if counts is None:
            return policy_params.argmax(-1), policy_params
        return torch.stack(
            [choice.argmax(-1) for choice in policy_params.split(counts, -1)], -1
        ), policy_params

    def policy_params(self, inputs: Sequence[Tensor]) -> Tensor:
        """Logits, means or action values [B, A]."""
        named = dict(zip(input_names(self.layout), inputs, strict=True))
        mask = named.get(MASK)
        if self.layout.image_shape is None:
            vector, image = named[OBSERVATION], None
        elif VECTOR in named:
            vector, image = named[VECTOR], named[IMAGE]
        else:
            vector, image = None, named[OBSERVATION]
        if vector is not None and self.normalize is not None:
            vector = self.normalize(vector)
        if vector is not None and self.layout.dtype == np.uint8:
            return self._params_of_parts(vector, image, mask)
        return self.network.policy_params(packed(self.layout, vector, image, mask))

    def _params_of_parts(self, vector: Tensor, image: Tensor | None, mask: Tensor | None) -> Tensor:
        """Logits, means or action values without packed bytes, which ONNX cannot unpack."""
        encoder = self.network.encoder
        if not isinstance(encoder, PackedNumbers | PackedImage):
            raise UserError(
                "a custom whole network that unpacks an image and a vector from rows of bytes cannot "
                "be expressed in ONNX; an encoder, to which heads are added, can"
            )
        policy_params = self.network.unmasked_params(encoder.from_parts(vector, image))
        return policy_params if mask is None else forbid(policy_params, ~mask)


class NormalizeVector(nn.Module):
    """The observation normalizer with its current statistics, in double precision as in training."""

    mean: Tensor
    inverse_std: Tensor

    def __init__(self, normalizer: ObservationNormalizer) -> None:
        super().__init__()
        self.clip = normalizer.clip
        self.register_buffer("mean", torch.from_numpy(normalizer.mean.copy()))
        self.register_buffer("inverse_std", torch.from_numpy(normalizer.inverse_std.copy()))

    def forward(self, vector: Tensor) -> Tensor:
        scaled = (vector.double() - self.mean) * self.inverse_std
        return scaled.clamp(-self.clip, self.clip).to(vector.dtype)


class MapActions(nn.Module):
    """Continuous actions as the environment gets them: clipped or scaled to their bounds."""

    limit: Tensor
    scale: Tensor
    offset: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, to_engine: ActionMap) -> None:
        super().__init__()
        for name, numbers in to_engine._asdict().items():
            self.register_buffer(name, torch.from_numpy(numbers.copy()))

    def forward(self, action: Tensor) -> Tensor:
        within = torch.minimum(torch.maximum(action, -self.limit), self.limit)
        return torch.minimum(torch.maximum(within * self.scale + self.offset, self.low), self.high)


def packed(layout: ObsLayout, vector: Tensor | None, image: Tensor | None, mask: Tensor | None) -> Tensor:
    """The network's observation [B, …], from its parts."""
    parts = [part for part in (vector, image, mask) if part is not None]
    if not layout.is_packed:
        (single,) = parts
        return single
    dtype = torch.float32 if layout.dtype == np.float32 else torch.uint8
    return torch.cat([part.flatten(1).to(dtype) for part in parts], 1)
