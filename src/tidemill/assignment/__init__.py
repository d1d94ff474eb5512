"""Which task is active, standby or warming up on which client and thread, and why: pure functions over values."""
