"""Tuning: search for a preset's numbers at a small batch, then check the result on fresh seeds.

`space.py` defines the search space, and `plan.py` fixes everything before the first trial. `trials.py`
chooses the numbers of trials. Their runs are cells, which `search.py` schedules for the runner of studies.
`tuned_file.py` writes the preset of the best trial and makes the study that checks it. `tune.py` ties it all
together.
"""
