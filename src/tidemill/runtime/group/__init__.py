"""A stream thread as a member of its group, and as the leader of a rebalance."""
