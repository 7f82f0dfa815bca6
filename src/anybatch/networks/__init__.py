"""Policy, value and action-value networks, their flat parameters and their moving average."""

from anybatch.networks.actor_critic import encoder_name, make
from anybatch.networks.q_network import make_q_network, q_encoder_name

__all__ = ["encoder_name", "make", "make_q_network", "q_encoder_name"]
