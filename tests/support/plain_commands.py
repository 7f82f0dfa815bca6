"""Commands as a person types them."""

import pytest

from anybatch.cli import main


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints, and nothing on stderr."""
    capsys.readouterr()
    main(words)
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out
