"""The operators record by record, with Kafka Streams' semantics: pure; run in a Python worker and by tests."""
