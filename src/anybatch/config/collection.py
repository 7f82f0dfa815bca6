"""Where data is collected: in the learner's process, or by actors while the learner learns."""

import re
from dataclasses import dataclass
from typing import Literal, cast

from anybatch.config.require import require

MOST_ACTORS = 4096
Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Collection:
    """Actors that collect while the learner learns, each with a shard of the environments."""

    engine: Engine
    """local: processes on this machine. ray: Ray actors, here or on other machines."""
    actors: int

    def __str__(self) -> str:
        places = {"local": "on this machine", "ray": "on Ray"}
        return f"{self.actors} actor{'s' * (self.actors > 1)} {places[self.engine]}"


def collection_of(actors: str | None, *, overlap: bool, num_envs: int) -> Collection | None:
    """The collection that the settings `actors` and `overlap` request; None if the learner collects by
    itself."""
    if actors is None:
        return Collection("local", 1) if overlap else None
    match = re.fullmatch(r"(local|ray):(\d{1,9})", actors)
    require(match is not None, f"actors = {actors!r}: must be local:N or ray:N, such as local:2")
    assert match is not None
    count = int(match[2])
    require(1 <= count <= MOST_ACTORS, f"actors = {actors}: must be from 1 to {MOST_ACTORS:,} actors")
    require(
        count <= num_envs,
        f"actors = {actors} is more than num-envs = {num_envs}: every actor needs an environment",
    )
    return Collection(cast("Engine", match[1]), count)
