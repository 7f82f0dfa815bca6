"""Procgen's sixteen games: their ids, and the published scale of their returns."""

import re
from typing import NamedTuple

from anybatch.envs.nearest_names import unknown

OBSERVATION_BYTES = 64 * 64 * 3
"""Layout of an image of 64 × 64 pixels in three colors, known without the engine, which needs Qt."""
MODES = {"procgen": "Hard", "procgen-easy": "Easy"}
"""Prefixes of plain names, and the mode they stand for."""


class ReturnRange(NamedTuple):
    """The returns that count as 0 and as 1."""

    low: float
    high: float


# Cobbe et al. 2019 (arXiv:1912.01588), App. C, in the order of arXiv:2110.00641: hard, then easy.
RANGES: dict[str, dict[str, ReturnRange]] = {
    game: {"Hard": ReturnRange(*hard), "Easy": ReturnRange(*easy)}
    for game, hard, easy in (
        ("coinrun", (5, 10), (5, 10)),
        ("starpilot", (1.5, 35), (2.5, 64)),
        ("caveflyer", (2, 13.4), (3.5, 12)),
        ("dodgeball", (1.5, 19), (1.5, 19)),
        ("fruitbot", (-0.5, 27.2), (-1.5, 32.4)),
        ("chaser", (0.5, 14.2), (0.5, 13)),
        ("miner", (1.5, 20), (1.5, 13)),
        ("jumper", (1, 10), (1, 10)),
        ("leaper", (1.5, 10), (1.5, 10)),
        ("maze", (4, 10), (5, 10)),
        ("bigfish", (0, 40), (1, 40)),
        ("heist", (2, 10), (3.5, 10)),
        ("climber", (1, 12.6), (2, 12.6)),
        ("plunder", (3, 30), (4.5, 30)),
        ("ninja", (2, 10), (3.5, 10)),
        ("bossfight", (0.5, 13), (0.5, 13)),
    )
}
GAMES = tuple(RANGES)


def engine_id(env_id: str) -> str | None:
    """EnvPool's id for a plain name such as procgen:coinrun; None for any other id."""
    prefix, _, game = env_id.partition(":")
    if prefix not in MODES:
        return None
    if game not in RANGES:
        raise unknown(env_id, [f"{prefix}:{name}" for name in GAMES])
    return f"{game.capitalize()}{MODES[prefix]}-v0"


def return_range(env_id: str) -> ReturnRange | None:
    """The published range of a game in hard or easy mode, by any of its ids; None for anything else."""
    found = re.fullmatch(r"(?:envpool:)?([A-Z][a-z]+)(Hard|Easy)-v0", engine_id(env_id) or env_id)
    ranges = RANGES.get(found[1].lower()) if found else None
    return ranges[found[2]] if found and ranges else None


def normalized_return(env_id: str, episode_return: float) -> float | None:
    """(R - R_min) / (R_max - R_min), as Procgen's results are published; None for other environments."""
    known = return_range(env_id)
    return None if known is None else (episode_return - known.low) / (known.high - known.low)
