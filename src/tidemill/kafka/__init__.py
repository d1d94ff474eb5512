"""All that talks to Kafka: the group, the data, the brokers' administration, and a broker of our own for one machine."""
