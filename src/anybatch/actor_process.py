"""The program of an actor's process, which `acting/actors/local_transport.py` starts."""

from typing import TYPE_CHECKING

from anybatch.acting.actors import local_transport

if TYPE_CHECKING:
    from anybatch.acting.actors.worker import ActorWorker


def main() -> None:
    local_transport.main(build)


def build(recipe: bytes) -> "ActorWorker":
    """What the learner describes. Imports torch, and so only after the first sign of life."""
    from anybatch.algorithms.actors import build

    return build(recipe)
