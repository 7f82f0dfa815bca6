"""The words of a command line before they are parsed as flags."""


def value_of(flag: str, words: list[str]) -> str | None:
    """The value of a flag that must be known before the others are parsed."""
    for position, word in enumerate(words):
        if word == flag and position + 1 < len(words):
            return words[position + 1]
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None


def without(flag: str, words: list[str]) -> list[str]:
    """The words without a flag and its value, if present."""
    for place, word in enumerate(words):
        if word == flag or word.startswith(f"{flag}="):
            return words[:place] + without(flag, words[place + (2 if word == flag else 1) :])
    return words
