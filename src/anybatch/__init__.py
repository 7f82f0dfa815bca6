"""On-policy deep RL in which the batch size is a dial."""

__version__ = "0.1.0"
