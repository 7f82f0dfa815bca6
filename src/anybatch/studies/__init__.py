"""Studies: an experiment as data, its cells, and the processes that run them.

A study file (`*.toml` here, or the user's own) names bases, arms and the grid of each scale. `plan.py` makes
of it the list of cells, `runner.py` trains those that are missing, `cells.py` is what they leave on the disk.
What the cells mean is said by `anybatch.reports`.
"""
