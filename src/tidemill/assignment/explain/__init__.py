"""Why a task is where it is: the rules that were applied and what they decided."""
