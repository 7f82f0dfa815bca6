"""The structures of the native library, as ctypes sees them, and how they are filled from tensors."""

import ctypes
from typing import cast

from torch import Tensor, nn

from anybatch.networks.actor_critic import ActorCritic, Policy
from anybatch.networks.encoders import MLPEncoder
from anybatch.networks.packed import FeatureEncoder

MOST_LAYERS = 8
"""As mlp.h has it."""

Pointer = ctypes.c_void_p


class LinearStruct(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("weight", Pointer),
        ("bias", Pointer),
        ("d_weight", Pointer),
        ("d_bias", Pointer),
    ]


class EncoderStruct(ctypes.Structure):
    _fields_ = [("layers", ctypes.c_int32), ("layer", LinearStruct * MOST_LAYERS)]


class PolicyStruct(ctypes.Structure):
    _fields_ = [
        ("encoder", EncoderStruct),
        ("head", LinearStruct),
        ("log_std", Pointer),
        ("d_log_std", Pointer),
    ]


class ActorCriticStruct(ctypes.Structure):
    _fields_ = [
        ("policy", PolicyStruct),
        ("value_encoder", EncoderStruct),
        ("value_head", LinearStruct),
        ("detaches_value", ctypes.c_int32),
    ]


class SamplesStruct(ctypes.Structure):
    _fields_ = [
        (name, Pointer)
        for name in (
            "obs",
            "action",
            "behavior_logp",
            "proximal_logp",
            "proximal_location",
            "proximal_log_std",
            "advantage",
            "value",
            "value_target",
        )
    ]


class ObjectiveStruct(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_double)
            for name in (
                "lower_log_clip",
                "upper_log_clip",
                "log_max_importance",
                "kl_penalty",
                "entropy_coefficient",
                "value_coefficient",
                "value_clip",
                "advantage_shift",
                "advantage_scale",
                "count",
            )
        ),
        ("exact_kl", ctypes.c_int32),
    ]


class RecordStruct(ctypes.Structure):
    _fields_ = [
        (name, Pointer)
        for name in ("objective", "value_loss", "entropy", "logp", "behavior_logp", "proximal_logp")
    ]


def pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def linear(layer: nn.Linear) -> LinearStruct:
    return LinearStruct(
        layer.in_features,
        layer.out_features,
        pointer(layer.weight),
        pointer(layer.bias),
        pointer(layer.weight.grad),
        pointer(layer.bias.grad),
    )


def encoder(module: FeatureEncoder | None) -> EncoderStruct:
    """An mlp encoder; without layers for None."""
    assert module is None or isinstance(module, MLPEncoder)
    layers = [] if module is None else [linear(cast(nn.Linear, layer)) for layer in module.layers]
    return EncoderStruct(len(layers), (LinearStruct * MOST_LAYERS)(*layers))


def policy(module: Policy) -> PolicyStruct:
    log_std = module.log_std
    return PolicyStruct(
        encoder(module.encoder),
        linear(module.head),
        pointer(log_std),
        None if log_std is None else pointer(log_std.grad),
    )


def actor_critic(network: ActorCritic) -> ActorCriticStruct:
    return ActorCriticStruct(
        policy(network.policy),
        encoder(network.value_encoder),
        linear(network.value_head),
        int(network.detaches_value),
    )
