"""Metrics under Kafka Streams' names: their list (``names``), and rates, averages and maxima (``sensor``).

What is recorded when is the runtime's; who may read it over HTTP, and in which form, is ``query``'s.
"""
