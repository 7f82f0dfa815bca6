"""PPO, decoupled PPO and PPO-EWMA."""
