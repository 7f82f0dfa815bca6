"""Engine options, which arrive as text from the command line."""

from collections.abc import Iterable, Mapping

from anybatch.errors import EnvError

OptionValue = bool | int | float | str


def parse(options: Mapping[str, str]) -> dict[str, OptionValue]:
    """Recognize true, false, integers and decimal numbers; anything else stays text."""
    return {name: _value(text) for name, text in options.items()}


def _value(text: str) -> OptionValue:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def take_choice(
    env_id: str, options: dict[str, OptionValue], name: str, choices: Iterable[str]
) -> str | None:
    """Remove the option `name` and return it, refusing anything that is not one of `choices`."""
    choice = options.pop(name, None)
    if choice is None:
        return None
    if choice not in (allowed := tuple(choices)):
        raise EnvError(f"{env_id}: the option {name} = {choice} is not one of {', '.join(allowed)}")
    return str(choice)
