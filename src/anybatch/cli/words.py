"""The words of a command line before they are parsed as flags."""

from itertools import zip_longest


def value_of(flag: str, words: list[str]) -> str | None:
    """The value of a flag that must be known before the others are parsed: the last one, as tyro takes it."""
    value = None
    for word, following in zip_longest(words, words[1:]):
        if word == flag and following is not None:
            value = following
        if word.startswith(f"{flag}="):
            value = word.removeprefix(f"{flag}=")
    return value


def without(flag: str, words: list[str]) -> list[str]:
    """The words without a flag and its value, if present."""
    for place, word in enumerate(words):
        if word == flag or word.startswith(f"{flag}="):
            return words[:place] + without(flag, words[place + (2 if word == flag else 1) :])
    return words
