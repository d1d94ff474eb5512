"""What a Python worker keeps from batch to batch: the steps, the stores of tasks, their locks."""
