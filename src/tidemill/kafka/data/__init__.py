"""Records to and from Kafka: reading a task's partitions, writing in transactions."""
