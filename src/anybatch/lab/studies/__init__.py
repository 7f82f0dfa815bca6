"""Studies: an experiment as data, its cells, and the processes that run them.

A study file (`*.toml` here, or the user's own) names bases, arms and the grid of each scale. `plan.py` turns
it into the list of cells, `runner.py` trains those that are missing, `cells.py` describes the files that they
leave. `anybatch.lab.verdicts` evaluates the cells.
"""
