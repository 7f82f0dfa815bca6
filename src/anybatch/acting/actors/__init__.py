"""Actors: processes that collect while the learner learns.

`source.py` is the learner's side, `worker.py` the actor's side, and `engine.py` the interface between them;
`local.py` with `process.py`, and `ray_engine.py`, are the two engines. Messages are bytes made by
`runs/message.py`.
"""
