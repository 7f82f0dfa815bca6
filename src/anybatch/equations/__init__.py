"""The papers' equations, one file per subject. They import torch only.

The rules for plain numbers are in `anybatch.rules`; here they are also found as `equations.rescale`.
"""

from anybatch import rules as rescale

__all__ = ["rescale"]
