"""Recorded answers of Kafka Streams' assignors and members, recomputed and compared."""
