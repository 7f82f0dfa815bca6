"""The import of ray, which is an optional dependency."""

import contextlib
import os
from collections.abc import Iterator

from anybatch.errors import ConfigError

WITHOUT_CLUSTERS = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
"""Environment variable that lets a Ray listen on 127.0.0.1 only, as it does where Ray has no clusters. On
Linux it would otherwise listen on an address that other machines can reach, even if 127.0.0.1 is requested.
Ray reads it when it is imported, and so do its processes."""


@contextlib.contextmanager
def needed_for(asked: str, *, address: str | None) -> Iterator[None]:
    """Refuse what was `asked` for if the import of ray inside fails. Without the `address` of a cluster, a
    private Ray is prepared."""
    if address is None:
        os.environ.setdefault(*WITHOUT_CLUSTERS)
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{asked} needs the package ray ({error}); pip install 'anybatch[ray]' installs it"
        ) from None
