"""A stream thread: its loop, its tasks, its micro-batches and its offsets."""
