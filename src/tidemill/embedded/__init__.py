"""A Kafka broker of this machine for demos and tests, with its jars and its Java."""
