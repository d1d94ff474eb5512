"""State of a Python worker from batch to batch: the steps, the stores of tasks, their locks."""
