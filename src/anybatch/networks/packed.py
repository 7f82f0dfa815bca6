"""Unpacking observations of several parts, and encoding them together."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from anybatch.envs.layout import ObsLayout
from anybatch.networks.distributions import forbid
from anybatch.networks.encoders import to_float

BRANCH_FEATURES = 64
"""Units of the dense layer for a vector that comes with an image."""


def vector_of(layout: ObsLayout, obs: Tensor) -> Tensor:
    """The vectors [B, V] of packed observations [B, …]."""
    # A copy: only aligned bytes can be viewed as floats, and a product of rows that are not contiguous may
    # round differently from one without a mask.
    vector = obs[:, layout.vector_part].clone(memory_format=torch.contiguous_format)
    return vector.view(torch.float32) if layout.dtype == np.uint8 else vector


def image_of(layout: ObsLayout, obs: Tensor) -> Tensor:
    """The images [B, C, H, W] of packed observations [B, …], of the type that the layout says."""
    assert layout.image_shape is not None
    image = obs[:, layout.image_part].unflatten(1, layout.image_shape)
    return image.to(torch.bool) if layout.image_dtype == np.bool_ else image


def forbidden_actions(layout: ObsLayout, obs: Tensor) -> Tensor:
    """The actions forbidden by the masks of packed observations [B, …], bool [B, A]."""
    return obs[:, layout.mask_part] == 0


def masked(layout: ObsLayout | None, params: Tensor, obs: Tensor) -> Tensor:
    """Logits or action values [B, A] without the actions that masks forbid, if the layout has masks."""
    return params if layout is None else forbid(params, forbidden_actions(layout, obs))


def parts_of(layout: ObsLayout, obs: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Vector and image of packed observations [B, …], None for the one that the layout lacks."""
    return (
        vector_of(layout, obs) if layout.vector_width else None,
        None if layout.image_shape is None else image_of(layout, obs),
    )


def side_by_side(vector: Tensor | None, image: Tensor | None) -> Tensor:
    """Vectors [B, V] and images [B, C, H, W], one of which may be absent, as rows of numbers."""
    if image is None:
        assert vector is not None
        return vector
    pixels = image.flatten(1)
    if not pixels.is_floating_point():
        pixels = to_float(pixels, torch.float32)
    return pixels if vector is None else torch.cat([vector, pixels.to(vector.dtype)], 1)


class FeatureEncoder(Protocol):
    """An encoder of some part of an observation."""

    num_features: int

    def __call__(self, part: Tensor) -> Tensor: ...


class PackedNumbers(nn.Module):
    """An encoder of all numbers of a packed observation, including those of its image."""

    def __init__(self, layout: ObsLayout, encoder: FeatureEncoder):
        super().__init__()
        self.layout = layout
        self.encoder = encoder
        self.num_features = encoder.num_features

    def forward(self, obs: Tensor) -> Tensor:
        return self.from_parts(*parts_of(self.layout, obs))

    def from_parts(self, vector: Tensor | None, image: Tensor | None) -> Tensor:
        """The features [B, F] of observations that are not packed."""
        numbers = side_by_side(vector, image)
        # Rows of floats already have the network's type.
        return self.encoder(numbers if self.layout.dtype == np.float32 else numbers.to(_dtype_of(self)))


class PackedImage(nn.Module):
    """An encoder that sees the image of a packed observation, and a relu layer that sees its vector.

    `branch` gives BRANCH_FEATURES from the vector, which follow those of the image; None without a vector.
    `joint`, a relu layer with as many outputs as the image has features, sees both. It is needed if
    heads are linear: a sum of a function of the image and one of the vector cannot express their interaction.
    """

    def __init__(
        self,
        layout: ObsLayout,
        encoder: FeatureEncoder,
        branch: nn.Module | None,
        joint: nn.Module | None = None,
    ):
        super().__init__()
        self.layout = layout
        self.encoder = encoder
        self.branch = branch
        self.joint = joint
        beside = BRANCH_FEATURES if branch is not None and joint is None else 0
        self.num_features = encoder.num_features + beside

    def forward(self, obs: Tensor) -> Tensor:
        return self.from_parts(*parts_of(self.layout, obs))

    def from_parts(self, vector: Tensor | None, image: Tensor | None) -> Tensor:
        """The features [B, F] of observations that are not packed."""
        assert image is not None
        features = self.encoder(image)
        if self.branch is None or vector is None:
            return features
        both = torch.cat([features, self.branch(vector.to(_dtype_of(self))).relu()], 1)
        return both if self.joint is None else self.joint(both).relu()


def whole_encoder(
    layout: ObsLayout,
    make_part: Callable[[tuple[int, ...]], FeatureEncoder],
    *,
    flattens: bool,
    dense: Callable[[int, int], nn.Module],
    joins: bool = False,
) -> FeatureEncoder:
    """An encoder of a whole observation, around the one that `make_part` makes for the shape of a part.

    `flattens`: it sees all numbers as one vector. `dense` makes the layers for a vector beside an image;
    `joins` adds the one that sees both.
    """
    if not layout.is_packed:
        return make_part(layout.seen_shape)
    if flattens:
        return PackedNumbers(layout, make_part((layout.vector_width + layout.image_width,)))
    encoder = make_part(layout.seen_shape)
    if layout.vector_width == 0:
        return PackedImage(layout, encoder, None)
    branch = dense(layout.vector_width, BRANCH_FEATURES)
    inputs = encoder.num_features + BRANCH_FEATURES
    return PackedImage(layout, encoder, branch, dense(inputs, encoder.num_features) if joins else None)


def _dtype_of(module: nn.Module) -> torch.dtype:
    """The type that a module computes in; torch's own if it has no weights."""
    return next((parameter.dtype for parameter in module.parameters()), torch.get_default_dtype())
