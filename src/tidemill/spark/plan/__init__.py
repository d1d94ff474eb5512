"""From a topology to a Spark plan: which step runs a node, the serdes of every edge, the projections between steps."""
