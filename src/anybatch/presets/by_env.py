"""Which preset an environment gets where none is named: by its family, else by its observations."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from anybatch import envs
from anybatch.config import EnvConfig, ObsKind
from anybatch.envs import published
from anybatch.envs.ids import MUJOCO_TASKS, procgen_id

if TYPE_CHECKING:
    from anybatch.envs.protocol import EnvSpec


class Family(NamedTuple):
    """Environments that get one preset."""

    preset: str
    one: str
    """Clause about one of them, such as: is an Atari game."""
    all: str
    obs_kind: ObsKind = "vector"
    image_size: tuple[int, int] | None = None
    """Height and width, where all of them have the same."""


ATARI = Family("atari-ppo-ewma", "is an Atari game", "Atari games", "image", (84, 84))
PROCGEN = Family("procgen-ppo-ewma", "is a Procgen game", "Procgen games", "image", (64, 64))
PROCGEN_EASY = Family(
    "procgen-small-ppo-ewma",
    "is a Procgen game in easy mode, and this network fits every machine",
    "Procgen games in easy mode",
    "image",
    (64, 64),
)
MINATAR = Family("minatar-ppo-ewma", "is a MinAtar game", "MinAtar games", "planes", (10, 10))
MUJOCO = Family("mujoco-ppo-ewma", "is a MuJoCo task", "MuJoCo tasks")
CLASSIC = Family("classic-ppo-ewma", "is a classic control task", "classic control tasks")
BOX2D = Family("box2d-ppo-ewma", "is a Box2D task", "LunarLander and BipedalWalker")
VECTOR = Family(
    "vector-ppo-ewma",
    "has vector observations, and these numbers were not tuned on it",
    "all other environments with vector observations",
)
IMAGE = Family(
    "image-ppo-ewma",
    "has image observations, and these numbers were not tuned on it",
    "all other environments with image observations",
    "image",
)
FAMILIES = (ATARI, PROCGEN, PROCGEN_EASY, MINATAR, MUJOCO, CLASSIC, BOX2D, VECTOR, IMAGE)
STARTING_POINTS = frozenset(family.preset for family in (CLASSIC, VECTOR, IMAGE))
"""Presets for environments that they were not tuned on, whose actions may need to be scaled."""

PROCGEN_ID = re.compile(r"(?:envpool:)?([A-Z][a-z]+)(Easy|Hard|Extreme|Memory|Exploration)-v0")
MUJOCO_ID = re.compile(rf"(?:gym:|envpool:)?({'|'.join(MUJOCO_TASKS)})-v\d+")
CLASSIC_ID = re.compile(
    r"(?:gym:|envpool:)?(Acrobot|CartPole|MountainCar|MountainCarContinuous|Pendulum)-v\d+"
)
BOX2D_ID = re.compile(r"(?:gym:)?(LunarLander(Continuous)?|BipedalWalker(Hardcore)?)-v\d+")


@dataclass(frozen=True)
class Choice:
    """A preset that was chosen, not named."""

    preset: str
    reason: str
    """Why, as a clause that starts with the environment's id."""


def for_env(env_id: str, config: EnvConfig) -> Choice:
    """The preset for an environment. One is built where its id does not tell; EnvError where that fails."""
    family = family_by_id(env_id, config)
    if family is None:
        env = envs.make(env_id, config, seeds=[0])
        env.close()
        family = family_by_spec(env.spec)
    return Choice(family.preset, f"{env_id} {family.one}")


def for_spec(spec: "EnvSpec") -> Choice:
    """The preset for an environment that was built already, whose id may say nothing."""
    family = family_by_spec(spec)
    return Choice(family.preset, f"{spec.env_id} {family.one}")


def family_by_spec(spec: "EnvSpec") -> Family:
    """Only MinAtar's games show planes."""
    return {"vector": VECTOR, "image": IMAGE, "planes": MINATAR}[spec.obs_kind]


def is_procgen(env_id: str) -> bool:
    found = PROCGEN_ID.fullmatch(procgen_id(env_id) or env_id)
    return found is not None and found[1].lower() in published.PROCGEN["Hard"]


def family_by_id(env_id: str, config: EnvConfig) -> Family | None:
    """The family of an environment; None if the id does not tell."""
    if config.options.get("from_pixels", "false").lower() == "true":
        return None  # EnvPool then renders images of what has vectors otherwise
    if env_id.startswith("minatar:"):
        return MINATAR
    if is_procgen(env_id):
        return PROCGEN_EASY if "Easy" in (procgen_id(env_id) or env_id) else PROCGEN
    if MUJOCO_ID.fullmatch(env_id):
        return MUJOCO
    if CLASSIC_ID.fullmatch(env_id):
        return CLASSIC
    if BOX2D_ID.fullmatch(env_id):
        return BOX2D
    # The 57 games are known without loading EnvPool, which takes a while; it knows more of them.
    is_one_of_57 = published.atari_game(env_id) is not None and config.engine in ("auto", "envpool")
    return ATARI if is_one_of_57 or envs.is_atari(env_id, config) else None
