"""`python -m anybatch`, which must not find modules in the working folder before those that are installed."""

import contextlib
import os
import sys

with contextlib.suppress(FileNotFoundError):  # a working folder that was removed
    if sys.path[:1] == [os.getcwd()]:
        del sys.path[0]  # put there by -m, unless Python was told not to

from anybatch.cli import main

main()
