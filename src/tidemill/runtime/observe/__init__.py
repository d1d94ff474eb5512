"""Observation of an instance: metrics, status, restores and rebalances."""
