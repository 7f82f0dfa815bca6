"""What the documentation site is made of besides the pages in docs/: pages made from code and repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""
