"""Studies: an experiment as data, its cells, and the processes that run them.

A study file (`*.toml` here, or the user's own; `files.py` describes the format) names bases, arms and the
grid of each scale. `plan.py` turns it into the list of cells, and `opening.py` fixes it in a folder.
`runner.py` gives the missing cells to the workers of an executor: processes (`executor.py`) or Ray
(`ray_executor.py`). Each runs `worker.py`, which trains cells (`training.py`) and leaves the files that
`cells.py` describes. `recorded.py` packs them into one file. `anybatch.lab.verdicts` evaluates the cells. The
trials of a tuning are cells too, and use all of this.
"""
