"""Compilation of a topology to a Spark plan: the step of each node, the serdes of every edge, the projections between steps."""
