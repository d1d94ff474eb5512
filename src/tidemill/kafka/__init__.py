"""Kafka clients: the group, the data, administration of the brokers, security."""
