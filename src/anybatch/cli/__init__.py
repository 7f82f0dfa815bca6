"""The command line: parses and calls."""

from anybatch.cli.main import main

__all__ = ["main"]
