"""Published scores of Atari's and Procgen's games, and the scales on which their results are reported."""

import math
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple


class Scale(NamedTuple):
    """The scores that count as 0 and as 1: in Atari, those of random play and of a professional tester."""

    low: float
    high: float

    def __call__(self, score: float) -> float:
        return (score - self.low) / (self.high - self.low)


_FILE = resources.files(__package__ or "") / "published_scores.toml"
_TABLES = tomllib.loads(_FILE.read_text(encoding="utf-8"))

ATARI = {game: Scale(*scores) for game, scores in _TABLES["atari"]["scores"].items()}
PROCGEN: dict[str, dict[str, Scale]] = {
    mode: {game: Scale(*scores) for game, scores in games.items()}
    for mode, games in _TABLES["procgen"].items()
}
"""By mode, Hard or Easy, and game."""
PROCGEN_MODES = {"procgen": "Hard", "procgen-easy": "Easy"}
"""Prefixes of plain names such as procgen:coinrun, and the mode they stand for."""
COEFFICIENTS: dict[str, dict[str, float]] = _TABLES["atari"]["suites"]
SUITES: dict[str, tuple[str, ...]] = {
    **{suite: tuple(coefficients) for suite, coefficients in COEFFICIENTS.items()},
    "atari-57": tuple(ATARI),
}


def atari_game(env_id: str) -> str | None:
    """The game, among the 57, of an id such as Breakout-v5 or ALE/Breakout-v5; None for anything else."""
    found = re.fullmatch(r"(?:envpool:|ALE/)?([A-Za-z]+)-v5", env_id)
    return found[1] if found and found[1] in ATARI else None


def procgen_scale(env_id: str) -> Scale | None:
    """The scale of a Procgen game in hard or easy mode, by any of its ids; None for anything else."""
    prefix, _, game = env_id.partition(":")
    mode = PROCGEN_MODES.get(prefix)
    if mode is None:
        found = re.fullmatch(r"(?:envpool:)?([A-Z][a-z]+)(Hard|Easy)-v0", env_id)
        game, mode = (found[1].lower(), found[2]) if found else ("", "Hard")
    return PROCGEN[mode].get(game)


def human_normalized(env_id: str, score: float) -> float | None:
    """(score - random) / (human - random); None for anything but Atari's 57 games."""
    game = atari_game(env_id)
    return None if game is None else ATARI[game](score)


def on_published_scale(env_id: str, episode_return: float) -> float | None:
    """Procgen's normalized return, Atari's human-normalized score; None for all other environments."""
    scale = procgen_scale(env_id)
    return human_normalized(env_id, episode_return) if scale is None else scale(episode_return)


def predicted_median(suite: str, scores: Mapping[str, float]) -> float | None:
    """The median human-normalized score over the 57 games, in percent, predicted from the games of a suite.

        10^{Σ_g c_g · log10(1 + max(0, 100 · HNS_g))} - 1

    Aitchison, Sweetser, Hutter 2023 (arXiv:2210.02019). `scores` are the games', by name. None if one of
    the suite's games is missing, and for a suite that is all of the games.
    """
    coefficients = COEFFICIENTS.get(suite)
    if coefficients is None or coefficients.keys() - scores.keys():
        return None
    exponent = sum(
        coefficient * math.log10(1 + max(0.0, 100 * ATARI[game](scores[game])))
        for game, coefficient in coefficients.items()
    )
    return 10**exponent - 1
