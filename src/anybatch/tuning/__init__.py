"""Tuning: search the numbers of a preset at a small batch, then check what was found on fresh seeds.

`space.py` says what is searched and how far, `plan.py` fixes everything before the first trial, `runner.py`
trains the trials in the worker processes of studies, `optuna_trials.py` chooses their numbers, and `check.py`
compares the best of them with the preset it started from. `tune.py` is the way through all of it.
"""
