"""What Python and the C sources have to agree on: structures, functions and numbers.

Each structure is listed here in the order of its C declaration. Every library carries a table of where the C
compiler put their fields, and `check` compares it with where ctypes puts them. So a field that one side has
moved or added is noticed when the library is loaded, instead of being read from the wrong place. Structures
have no slots: setting a field that does not exist is an error.
"""

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any

MOST_LAYERS = 8
"""Dense layers of an encoder."""
CLASSIC_CONTROL_STATE = 4
"""Numbers in the state of an env of classic control."""
MINATAR_SIDE = 10
"""Rows and columns of MinAtar's boards."""
NUMBERS = {
    "MOST_LAYERS": MOST_LAYERS,
    "CLASSIC_CONTROL_STATE": CLASSIC_CONTROL_STATE,
    "MINATAR_SIDE": MINATAR_SIDE,
}
"""The compiler gets them from here, so they are written only once."""

Pointer = ctypes.c_void_p
Fields = list[tuple[str, Any]]


def _pointers(names: str) -> Fields:
    return [(name, Pointer) for name in names.split()]


class LinearStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        *_pointers("weight bias d_weight d_bias"),
    ]


class LayerStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("linear", LinearStruct),
        *_pointers("norm_weight norm_bias d_norm_weight d_norm_bias"),
        ("relu", ctypes.c_int32),
    ]


class EncoderStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("planes", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("channels_first", ctypes.c_int32),
        ("convolution", LayerStruct),
        ("layers", ctypes.c_int32),
        ("layer", LayerStruct * MOST_LAYERS),
    ]


class PolicyStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [("encoder", EncoderStruct), ("head", LinearStruct), *_pointers("log_std d_log_std")]


class ActorCriticStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("policy", PolicyStruct),
        ("value_encoder", EncoderStruct),
        ("value_head", LinearStruct),
        ("detaches_value", ctypes.c_int32),
    ]


class QNetworkStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [("encoder", EncoderStruct), ("head", LinearStruct)]


class QSamplesStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = _pointers("obs action target")


class SamplesStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = _pointers(
        "obs action behavior_logp proximal_logp proximal_params proximal_log_std advantage value value_target"
    )


class ObjectiveStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("lower_log_clip", ctypes.c_double),
        ("upper_log_clip", ctypes.c_double),
        ("log_max_importance", ctypes.c_double),
        ("kl_penalty", ctypes.c_double),
        ("entropy_coefficient", ctypes.c_double),
        ("value_coefficient", ctypes.c_double),
        ("value_clip", ctypes.c_double),
        ("count", ctypes.c_double),
        ("exact_kl", ctypes.c_int32),
    ]


class RecordStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = _pointers("objective value_loss entropy logp behavior_logp proximal_logp")


class FinalsStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [*_pointers("obs step env"), ("count", ctypes.c_int64)]


class RolloutStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        *_pointers("step envs"),
        ("num_envs", ctypes.c_int32),
        ("num_steps", ctypes.c_int32),
        ("obs_bytes", ctypes.c_int64),
        ("action_bytes", ctypes.c_int64),
        ("params_width", ctypes.c_int64),
        ("noise_row", ctypes.c_int64),
        *_pointers("obs noise params value action reward terminated truncated valid ended"),
        ("finals", FinalsStruct),
    ]


class WeightsStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        *_pointers("value gradient first second"),
        ("count", ctypes.c_int64),
        ("beta1", ctypes.c_double),
        ("beta2", ctypes.c_double),
        ("max_norm", ctypes.c_double),
        ("clip_epsilon", ctypes.c_double),
        ("average", Pointer),
        ("averaged", ctypes.c_int64),
        ("sums", Pointer),
    ]


class StepStruct(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("samples", ctypes.c_int64),
        ("step_size", ctypes.c_double),
        ("root_correction", ctypes.c_double),
        ("epsilon", ctypes.c_double),
        ("share", ctypes.c_double),
        ("norm", ctypes.c_double),
    ]


class ClassicControlEnvs(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("num_envs", ctypes.c_int32),
        ("step_limit", ctypes.c_int64),
        ("action_scale", ctypes.c_double),
        *_pointers("state seed draws steps done"),
    ]


class ClassicControlStep(ctypes.Structure):
    __slots__ = ()
    _fields_ = _pointers("obs reward terminated truncated valid ended")


class MinAtarGame(ctypes.Structure):
    """A game's rules. The library has one of each, under the game's name in C."""

    __slots__ = ()
    _fields_ = [
        ("state_bytes", ctypes.c_size_t),
        ("planes", ctypes.c_int),
        ("num_actions", ctypes.c_int),
        ("actions", ctypes.c_uint8 * 6),
        *_pointers("start play observe is_sound"),
    ]


class MinAtarEnvs(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("game", Pointer),
        ("num_envs", ctypes.c_int32),
        ("step_limit", ctypes.c_int64),
        ("sticky", ctypes.c_double),
        *_pointers("state seed draws steps last_action action reward terminated truncated ended"),
    ]


def _state(numbers: str, **arrays: tuple[int, int]) -> type[ctypes.Structure]:
    """The state of a MinAtar game: single `numbers`, and arrays, of which the maps of the board are bytes."""
    fields: Fields = [(name, ctypes.c_int32) for name in numbers.split()]
    for name, (rows, columns) in arrays.items():
        kind = ctypes.c_bool if name.endswith("_map") else ctypes.c_int32
        fields.append((name, kind * columns * rows))
    return type("State", (ctypes.Structure,), {"__slots__": (), "_fields_": fields})


_BOARD = MINATAR_SIDE, MINATAR_SIDE
MINATAR_STATES = {
    "asterix": _state(
        "player_x player_y spawn_speed spawn_timer move_speed move_timer ramp_timer ramp_index",
        entities=(8, 4),
    ),
    "breakout": _state("ball_x ball_y ball_dir last_x last_y pos strike", brick_map=_BOARD),
    "freeway": _state("pos move_timer terminate_timer", cars=(8, 4)),
    "seaquest": _state(
        "sub_x sub_y sub_or oxygen diver_count surface shot_timer e_spawn_speed e_spawn_timer d_spawn_timer "
        "move_speed ramp_index",
        f_bullets=(2, 3),
        e_bullets=(30, 3),
        e_fish=(30, 4),
        e_subs=(30, 5),
        divers=(2, 4),
    ),
    "space_invaders": _state(
        "pos shot_timer alien_dir enemy_move_interval alien_move_timer alien_shot_timer ramp_index",
        f_bullet_map=_BOARD,
        e_bullet_map=_BOARD,
        alien_map=_BOARD,
    ),
}
"""By the game's name in C."""

STRUCTS: Mapping[str, Mapping[str, type[ctypes.Structure]]] = {
    "ppo": {
        "Linear": LinearStruct,
        "Layer": LayerStruct,
        "Encoder": EncoderStruct,
        "Policy": PolicyStruct,
        "ActorCritic": ActorCriticStruct,
        "Samples": SamplesStruct,
        "Objective": ObjectiveStruct,
        "Record": RecordStruct,
        "Finals": FinalsStruct,
        "Rollout": RolloutStruct,
        "Weights": WeightsStruct,
        "Step": StepStruct,
    },
    "pqn": {"QNetwork": QNetworkStruct, "QSamples": QSamplesStruct},
    "classic_control": {"Envs": ClassicControlEnvs, "Step": ClassicControlStep},
    "minatar": {"Envs": MinAtarEnvs, "MinAtarGame": MinAtarGame},
    **{f"minatar_{game}": {"State": state} for game, state in MINATAR_STATES.items()},
}
"""By C file, without its ending, and the type's name there."""

_int32, _int64, _double = ctypes.c_int32, ctypes.c_int64, ctypes.c_double
(
    _Encoder,
    _Linear,
    _ActorCritic,
    _Policy,
    _QNetwork,
    _Samples,
    _QSamples,
    _Objective,
    _Record,
    _Rollout,
    _Weights,
    _Step,
) = (
    ctypes.POINTER(struct)
    for struct in (
        EncoderStruct,
        LinearStruct,
        ActorCriticStruct,
        PolicyStruct,
        QNetworkStruct,
        SamplesStruct,
        QSamplesStruct,
        ObjectiveStruct,
        RecordStruct,
        RolloutStruct,
        WeightsStruct,
        StepStruct,
    )
)
FUNCTIONS: Mapping[str, tuple[Any, list[Any]]] = {
    "ppo_workspace": (_int64, [_ActorCritic, _int64, _int32]),
    "act": (None, [_ActorCritic, _int32, *[Pointer] * 6]),
    "ppo_rollout": (None, [_ActorCritic, _Rollout, Pointer, _int32]),
    "ppo_gradient": (
        None,
        [_ActorCritic, _Policy, _Samples, _Objective, Pointer, _int32, _Record, Pointer, _int32],
    ),
    "ppo_steps": (
        _int32,
        [
            *[_ActorCritic, _Policy, _Samples, _Objective, Pointer, _Record, Pointer],
            *[_Weights, _Step, _int32, _int32],
        ],
    ),
    "outputs_workspace": (_int64, [_Encoder, _int32]),
    "outputs": (None, [_Encoder, _Linear, _int32, *[Pointer] * 3, _int32]),
    "q_workspace": (_int64, [_QNetwork, _int64, _int32]),
    "q_act": (None, [_QNetwork, _double, _int32, *[Pointer] * 6]),
    "q_rollout": (None, [_QNetwork, _double, _Rollout, Pointer, _int32]),
    "q_gradient": (
        None,
        [_QNetwork, _QSamples, _double, _double, Pointer, _int32, *[Pointer] * 3, _int32],
    ),
    "q_steps": (
        _int32,
        [_QNetwork, _QSamples, _double, *[Pointer] * 4, _Weights, _Step, _int32, _int32],
    ),
    "useful_members": (ctypes.c_int, [ctypes.c_int, _int64, _int64]),
    "step_sums": (_int64, [_int64]),
    "squared_norm": (_double, [Pointer, _int64]),
    "adam": (None, [*[Pointer] * 4, _int64, *[_double] * 6]),
    "classic_control_width": (_int32, [_int32]),
    "reset_envs": (None, [Pointer, Pointer]),
    "step_envs": (None, [Pointer, Pointer, Pointer]),
    "classic_control_is_sound": (ctypes.c_int, [Pointer]),
    "classic_control_row": (None, [Pointer, Pointer]),
    "minatar_is_sound": (ctypes.c_int, [Pointer]),
    "start_minatar": (None, [Pointer, Pointer]),
    "play_minatar": (ctypes.c_int, [Pointer, Pointer]),
    "minatar_row": (None, [Pointer, Pointer]),
}
"""What each function returns and takes. Envs are passed by address: to check the type of a structure, ctypes
takes a tenth of the time of a step."""


def tables(stem: str) -> str:
    """C code for the end of a file: where the compiler puts the fields of its structures."""
    lines = ["", "#include <stddef.h>"]
    for name, struct in STRUCTS.get(stem, {}).items():
        places = [f"offsetof({name}, {field}), sizeof((({name} *)0)->{field})" for field in _names(struct)]
        lines.append(
            f"const int64_t {_symbol(stem, name)}[] = {{{', '.join([*places, f'sizeof({name})'])}}};"
        )
    return "\n".join(lines) + "\n"


class LayoutError(Exception):
    """Python and C do not agree; the message says on what."""


def check(library: ctypes.CDLL) -> None:
    """Refuse a library whose structures are not those of this file."""
    for stem, structs in STRUCTS.items():
        for name, struct in structs.items():
            here = list(_places(struct))
            there = (_int64 * len(here)).in_dll(library, _symbol(stem, name))
            for place, (ours, theirs) in enumerate(zip(here, there, strict=True)):
                if ours != theirs:
                    field = [*_names(struct), "its end"][place // 2]
                    raise LayoutError(f"the struct {name} in {stem}.c and in layout.py differ at {field}")


def declare_functions(library: ctypes.CDLL) -> None:
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LayoutError(f"there is no function {name} in C") from None
        function.restype, function.argtypes = result, arguments


def _names(struct: type[ctypes.Structure]) -> list[str]:
    return [field[0] for field in struct._fields_]


def _places(struct: type[ctypes.Structure]) -> Iterator[int]:
    for name in _names(struct):
        field = getattr(struct, name)
        yield field.offset
        yield field.size
    yield ctypes.sizeof(struct)


def _symbol(stem: str, name: str) -> str:
    return f"layout_{stem}_{name}"
