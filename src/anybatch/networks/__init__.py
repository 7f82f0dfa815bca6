"""Policy, value and action-value networks, their flat parameters and their moving average."""

from anybatch.networks.actor_critic import make
from anybatch.networks.encoders import encoder_name
from anybatch.networks.q_network import make_q_network

__all__ = ["encoder_name", "make", "make_q_network"]
