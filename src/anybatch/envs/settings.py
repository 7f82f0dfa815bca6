"""Settings of an environment: options of its engine, and settings that only some games have."""

from collections.abc import Iterable, Mapping

from anybatch.config import EnvConfig
from anybatch.errors import EnvError

OptionValue = bool | int | float | str


def parse_options(options: Mapping[str, str]) -> dict[str, OptionValue]:
    """The engine's options, which arrive as text: true, false, whole and decimal numbers are recognized."""
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


def validate_no_atari_settings(env_id: str, config: EnvConfig, *, takes_sticky: bool = False) -> None:
    """Refuse settings that an environment other than an Atari game cannot have."""
    settings = {
        "episodic-life": config.episodic_life,
        "reward-clip": config.reward_clip,
        "sticky": 0.0 if takes_sticky else config.sticky,
    }
    for field, value in settings.items():
        if value:
            games = "EnvPool's Atari games" + (" or MinAtar's" if field == "sticky" else "")
            raise EnvError(
                f"env-config.{field} = {value} needs one of {games}, and {env_id} is not one of them"
            )
