"""Policy and value networks, their flat parameters and their moving average."""

from anybatch.networks.actor_critic import encoder_name, make

__all__ = ["encoder_name", "make"]
