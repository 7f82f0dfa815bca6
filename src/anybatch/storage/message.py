"""State trees as bytes for another process: JSON and safetensors, no pickle."""

import json

from safetensors.torch import load, save

from anybatch.storage import state_tree
from anybatch.storage.state_tree import StateTree

_LENGTH_BYTES = 8


def pack(tree: StateTree) -> bytes:
    """`tree` as bytes."""
    tensors, plain = state_tree.split(tree)
    text = json.dumps(plain, allow_nan=False).encode()
    return len(text).to_bytes(_LENGTH_BYTES, "big") + text + save(tensors)


def unpack(message: bytes) -> StateTree:
    """The packed tree. Its tensors are not aligned: copy them before computing with them.

    A matrix product of unaligned operands rounds differently.
    """
    length = int.from_bytes(message[:_LENGTH_BYTES], "big")
    text, tensors = message[_LENGTH_BYTES : _LENGTH_BYTES + length], message[_LENGTH_BYTES + length :]
    return state_tree.join(load(tensors), json.loads(text))
