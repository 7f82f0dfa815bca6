"""Tuning: search for a preset's numbers at a small batch, then check the result on fresh seeds.

`space.py` defines the search space, `plan.py` fixes everything before the first trial, `runner.py` trains the
trials in the worker processes of studies, `optuna_trials.py` chooses their numbers, and `check.py` compares
the best trial with the original preset. `tune.py` ties it all together.
"""
