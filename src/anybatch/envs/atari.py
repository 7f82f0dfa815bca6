"""Atari's 57 games: the scores that count as 0 and as 1, and smaller suites that predict their median."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple


class Scores(NamedTuple):
    """Scores of random play and of a professional tester."""

    random: float
    human: float


# The published scores in DeepMind's DQN Zoo: games start with 1 to 30 no-ops and last at most 108,000 frames.
# Some other tables have 0 as the random score of VideoPinball.
SCORES: dict[str, Scores] = {
    game: Scores(random, human)
    for game, random, human in (
        ("Alien", 227.8, 7127.7),
        ("Amidar", 5.8, 1719.5),
        ("Assault", 222.4, 742.0),
        ("Asterix", 210.0, 8503.3),
        ("Asteroids", 719.1, 47388.7),
        ("Atlantis", 12850.0, 29028.1),
        ("BankHeist", 14.2, 753.1),
        ("BattleZone", 2360.0, 37187.5),
        ("BeamRider", 363.9, 16926.5),
        ("Berzerk", 123.7, 2630.4),
        ("Bowling", 23.1, 160.7),
        ("Boxing", 0.1, 12.1),
        ("Breakout", 1.7, 30.5),
        ("Centipede", 2090.9, 12017.0),
        ("ChopperCommand", 811.0, 7387.8),
        ("CrazyClimber", 10780.5, 35829.4),
        ("Defender", 2874.5, 18688.9),
        ("DemonAttack", 152.1, 1971.0),
        ("DoubleDunk", -18.6, -16.4),
        ("Enduro", 0.0, 860.5),
        ("FishingDerby", -91.7, -38.7),
        ("Freeway", 0.0, 29.6),
        ("Frostbite", 65.2, 4334.7),
        ("Gopher", 257.6, 2412.5),
        ("Gravitar", 173.0, 3351.4),
        ("Hero", 1027.0, 30826.4),
        ("IceHockey", -11.2, 0.9),
        ("Jamesbond", 29.0, 302.8),
        ("Kangaroo", 52.0, 3035.0),
        ("Krull", 1598.0, 2665.5),
        ("KungFuMaster", 258.5, 22736.3),
        ("MontezumaRevenge", 0.0, 4753.3),
        ("MsPacman", 307.3, 6951.6),
        ("NameThisGame", 2292.3, 8049.0),
        ("Phoenix", 761.4, 7242.6),
        ("Pitfall", -229.4, 6463.7),
        ("Pong", -20.7, 14.6),
        ("PrivateEye", 24.9, 69571.3),
        ("Qbert", 163.9, 13455.0),
        ("Riverraid", 1338.5, 17118.0),
        ("RoadRunner", 11.5, 7845.0),
        ("Robotank", 2.2, 11.9),
        ("Seaquest", 68.4, 42054.7),
        ("Skiing", -17098.1, -4336.9),
        ("Solaris", 1236.3, 12326.7),
        ("SpaceInvaders", 148.0, 1668.7),
        ("StarGunner", 664.0, 10250.0),
        ("Surround", -10.0, 6.5),
        ("Tennis", -23.8, -8.3),
        ("TimePilot", 3568.0, 5229.2),
        ("Tutankham", 11.4, 167.6),
        ("UpNDown", 533.4, 11693.2),
        ("Venture", 0.0, 1187.5),
        ("VideoPinball", 16256.9, 17667.9),
        ("WizardOfWor", 563.5, 4756.5),
        ("YarsRevenge", 3092.9, 54576.9),
        ("Zaxxon", 32.5, 9173.3),
    )
}
GAMES = tuple(SCORES)

COEFFICIENTS: dict[str, dict[str, float]] = {
    # The games of Aitchison, Sweetser, Hutter 2023 (arXiv:2210.02019), Atari-5; the coefficients are a refit
    # on their published data: 44 algorithms, R² 0.988, relative error 10.4 % in cross-validation.
    "atari-5": {
        "BattleZone": 0.3820,
        "DoubleDunk": 0.0679,
        "NameThisGame": 0.3108,
        "Phoenix": 0.1241,
        "Qbert": 0.0805,
    },
    # Atari-10 of the same paper, refit on the same data: 42 algorithms, R² 0.995, relative error 7.2 %.
    "atari-10": {
        "Amidar": 0.0825,
        "BattleZone": 0.1888,
        "Bowling": 0.0559,
        "DoubleDunk": 0.0852,
        "Frostbite": 0.0691,
        "KungFuMaster": 0.0986,
        "NameThisGame": 0.1287,
        "Phoenix": 0.1643,
        "Qbert": 0.0592,
        "Riverraid": 0.0486,
    },
}
SUITES: dict[str, tuple[str, ...]] = {
    **{suite: tuple(coefficients) for suite, coefficients in COEFFICIENTS.items()},
    "atari-57": GAMES,
}


def game_of(env_id: str) -> str | None:
    """The game, among the 57, of an id such as Breakout-v5, envpool:Breakout-v5 or ALE/Breakout-v5; None for
    anything else."""
    found = re.fullmatch(r"(?:envpool:|ALE/)?([A-Za-z]+)-v5", env_id)
    return found[1] if found and found[1] in SCORES else None


def human_normalized(env_id: str, score: float) -> float | None:
    """(score - random) / (human - random); None for anything but the 57 games."""
    game = game_of(env_id)
    return None if game is None else _normalized(game, score)


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
        coefficient * math.log10(1 + max(0.0, 100 * _normalized(game, scores[game])))
        for game, coefficient in coefficients.items()
    )
    return 10**exponent - 1


def _normalized(game: str, score: float) -> float:
    known = SCORES[game]
    return (score - known.random) / (known.human - known.random)
