"""Assignment of active, standby and warm-up tasks to clients and threads, with reasons: pure functions over values."""
