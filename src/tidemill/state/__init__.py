"""State stores of a task: protocol, implementations, on-disk layout and byte formats."""
