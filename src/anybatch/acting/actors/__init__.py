"""Actors: processes that collect while the learner learns.

`source.py` is the learner's side, `worker.py` the actor's side, and `transport.py` the interface between
them, with two implementations: `local_transport.py` and `ray_transport.py`. Messages are bytes made by
`storage/state_tree.py`.
"""
