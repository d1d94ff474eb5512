"""Tasks as values: what a micro-batch is asked to do, what it reports, how a task lives, restores and commits."""
