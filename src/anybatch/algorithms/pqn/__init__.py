"""PQN, PQN-L and PQN-XL."""
