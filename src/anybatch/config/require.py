"""How a config refuses its values."""

from anybatch.errors import ConfigError


def require(condition: bool, sentence: str) -> None:
    """Refuse a config: `sentence` names the fields and the values they have."""
    if not condition:
        raise ConfigError(sentence)
