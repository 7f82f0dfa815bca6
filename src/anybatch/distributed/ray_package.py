"""The error for a missing ray, which is an optional dependency."""

import contextlib
from collections.abc import Iterator

from anybatch.errors import ConfigError


@contextlib.contextmanager
def needed_for(asked: str) -> Iterator[None]:
    """Refuse what was `asked` for if the import inside fails."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{asked} needs the package ray ({error}); pip install 'anybatch[ray]' installs it"
        ) from None
