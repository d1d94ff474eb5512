"""``java.util``'s collections, where their iteration or polling order shows in Kafka's answers."""
