"""Actors: processes that collect while the learner learns.

`source.py` is what the learner sees, `worker.py` what an actor does, `engine.py` what is between them;
`local.py` with `process.py`, and `ray_engine.py`, are the two engines. What crosses a border is bytes of
`runs/message.py`.
"""
