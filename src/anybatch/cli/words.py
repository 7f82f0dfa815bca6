"""The words of a command line before they are parsed as flags."""

from itertools import zip_longest

from anybatch.config.require import whole_number
from anybatch.errors import UserError

MOST_RANKS = 1024
HELP_FLAGS = frozenset({"-h", "--help", "--help-all"})


def value_of(flag: str, words: list[str]) -> str | None:
    """The value of a flag that must be known before the others are parsed: the last one, as tyro takes it."""
    value = None
    for word, following in zip_longest(words, words[1:]):
        given = word.partition("=")[2] if "=" in word else following
        if is_flag(flag, word) and given is not None:
            value = given
    return value


def without(flag: str, words: list[str]) -> list[str]:
    """The words without a flag and its value, if present."""
    for place, word in enumerate(words):
        if is_flag(flag, word):
            return words[:place] + without(flag, words[place + (1 if "=" in word else 2) :])
    return words


def is_flag(flag: str, word: str) -> bool:
    """Whether a word is a flag, alone or with its value; tyro also accepts underscores for hyphens."""
    name = word.partition("=")[0]
    return name.startswith("--") and name.replace("_", "-") == flag


def number_of_ranks(words: list[str]) -> int:
    """The value of `--ranks`; 1 without the flag."""
    word = value_of("--ranks", words)
    if word is None:
        return 1
    try:
        number = whole_number(word)
    except ValueError:
        number = 0
    if not 1 <= number <= MOST_RANKS:
        raise UserError(f"--ranks {word}: must be a whole number from 1 to {MOST_RANKS:,}")
    return number
