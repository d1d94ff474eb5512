"""Topologies as values: nodes, graph, names, descriptions."""
