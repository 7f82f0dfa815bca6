"""Tuning: search for a preset's numbers at a small batch, then check the result on fresh seeds.

`space.py` defines the search space, and `plan.py` fixes everything before the first trial. `trials.py`
chooses the numbers of trials. Their runs are cells, which `search.py` schedules for the runner of studies.
`check.py` makes the final check, which is a study. `tune.py` ties it all together.
"""
