"""A train state as nested dicts, split into tensors (for safetensors) and plain values (for JSON), and back.

Leaves are torch tensors, numpy arrays, None, bool, int, float and str; containers are dict (keys str or int),
list and tuple. The round trip is exact; tensors come back on the CPU, without gradient. As bytes for another
process, a tree is JSON and safetensors: no pickle.
"""

import json
import math
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

StateTree = dict[str, Any]
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

# What JSON cannot express is written as an object with one of these keys.
_TENSOR, _ARRAY, _FLOAT, _INT, _TUPLE, _DICT = "$tensor", "$array", "$float", "$int", "$tuple", "$dict"
_LARGEST_INT = 2**63 - 1  # other JSON readers lose numbers beyond 64 bits
_NOT_A_KEY = "__metadata__"  # reserved by safetensors
_LENGTH_BYTES = 8


def split(tree: StateTree) -> tuple[dict[str, Tensor], Json]:
    """Copies of all tensors and arrays by their path in the tree, and the rest as JSON that names them."""
    tensors: dict[str, Tensor] = {}
    return tensors, _encode(tree, "", tensors)


def join(tensors: dict[str, Tensor], plain: Json) -> StateTree:
    """The tree that was split. Raises KeyError, TypeError or ValueError if the two parts do not match."""
    tree = _decode(plain, tensors)
    if not isinstance(tree, dict):
        raise TypeError(f"a train state is a dict, not {type(tree).__name__}")
    return tree


def _encode(node: object, path: str, tensors: dict[str, Tensor]) -> Json:
    if isinstance(node, Tensor):
        return {_TENSOR: _put(torch.empty(node.shape, dtype=node.dtype).copy_(node.detach()), path, tensors)}
    if isinstance(node, np.ndarray):
        return {_ARRAY: _put(_tensor_of(node, path), path, tensors)}
    if type(node) is dict:
        return _encode_dict(node, path, tensors)
    if type(node) is list or type(node) is tuple:
        items: Json = [_encode(item, f"{path}/{index}", tensors) for index, item in enumerate(node)]
        return items if type(node) is list else {_TUPLE: items}
    return _encode_value(node, path)


def _encode_value(node: object, path: str) -> Json:
    if type(node) is float:
        return node if math.isfinite(node) else {_FLOAT: repr(node)}
    if type(node) is int:
        return node if abs(node) <= _LARGEST_INT else {_INT: str(node)}
    # Exact types: a numpy scalar or an enum would come back as something else.
    if node is None or type(node) is bool or type(node) is str:
        return node
    raise TypeError(f"a train state cannot hold the {type(node).__name__} at {path or 'its root'}")


def _encode_dict(node: dict[object, object], path: str, tensors: dict[str, Tensor]) -> Json:
    encoded: list[tuple[str | int, Json]] = []
    for key, value in node.items():
        if type(key) is not str and type(key) is not int:
            raise TypeError(f"a key of a train state is a str or an int, not {key!r} at {path or 'its root'}")
        encoded.append((key, _encode(value, f"{path}/{key}" if path else str(key), tensors)))
    if all(isinstance(key, str) and not key.startswith("$") for key, _ in encoded):
        return {str(key): value for key, value in encoded}
    return {_DICT: [[_encode_value(key, path), value] for key, value in encoded]}


def _put(tensor: Tensor, path: str, tensors: dict[str, Tensor]) -> str:
    name = path
    while name in tensors or name == _NOT_A_KEY:
        name += "'"
    tensors[name] = tensor
    return name


def _tensor_of(array: np.ndarray, path: str) -> Tensor:
    try:
        return torch.from_numpy(np.array(array, order="C", copy=True))
    except (TypeError, ValueError):
        raise TypeError(f"a train state cannot hold an array of {array.dtype!r} at {path}") from None


def _decode(node: Json, tensors: dict[str, Tensor]) -> object:
    if isinstance(node, list):
        return [_decode(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1 and next(iter(node)).startswith("$"):
        ((kind, content),) = node.items()
        return _decode_special(kind, content, tensors)
    return {key: _decode(value, tensors) for key, value in node.items()}


def _decode_special(kind: str, content: Any, tensors: dict[str, Tensor]) -> object:
    match kind:
        case "$tensor":
            return tensors[content]
        case "$array":
            return tensors[content].numpy()
        case "$float":
            return float(content)
        case "$int":
            return int(content)
        case "$tuple":
            return tuple(_decode(item, tensors) for item in content)
        case "$dict":
            return {_decode(key, tensors): _decode(value, tensors) for key, value in content}
        case _:
            raise ValueError(f"{kind} is not part of a train state")


def pack(tree: StateTree) -> bytes:
    """A tree as bytes."""
    tensors, plain = split(tree)
    text = json.dumps(plain, allow_nan=False).encode()
    return len(text).to_bytes(_LENGTH_BYTES, "big") + text + save(tensors)


def unpack(message: bytes) -> StateTree:
    """The packed tree. Its tensors are not aligned: copy them before computing with them.

    A matrix product of unaligned operands rounds differently.
    """
    length = int.from_bytes(message[:_LENGTH_BYTES], "big")
    text, tensors = message[_LENGTH_BYTES : _LENGTH_BYTES + length], message[_LENGTH_BYTES + length :]
    return join(load(tensors), json.loads(text))
