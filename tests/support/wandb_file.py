"""Reads what Weights & Biases writes in its offline mode: protobuf records in the log format of LevelDB."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

MAGIC, HEADER_BYTES, BLOCK_BYTES = b":W&B", 7, 32768
CHUNK = struct.Struct("<IHB")
"""Checksum, length and kind of a part of a record."""
WHOLE, LAST = 1, 4


def records(path: Path) -> Iterator[Any]:
    data = path.read_bytes()
    assert data.startswith(MAGIC)
    place, content = HEADER_BYTES, b""
    while place + CHUNK.size <= len(data):
        room = BLOCK_BYTES - place % BLOCK_BYTES
        if room < CHUNK.size:
            place += room
            continue
        _, length, kind = CHUNK.unpack_from(data, place)
        place += CHUNK.size
        content += data[place : place + length]
        place += length
        if kind in (WHOLE, LAST):
            yield wandb_internal_pb2.Record.FromString(content)
            content = b""


def as_dict(items: Any) -> dict[str, Any]:
    """Items of a config or of a row of history."""
    return {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
