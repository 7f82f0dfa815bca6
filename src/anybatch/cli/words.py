"""The words of a command line before they are parsed as flags."""

from itertools import zip_longest


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
