"""Orders that an answer of Java's depends on: HashMap, TreeMap and PriorityQueue."""
