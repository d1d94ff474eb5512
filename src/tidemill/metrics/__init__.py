"""Metrics under Kafka Streams' names: what there is (``names``) and how rates, averages and maxima are kept (``sensor``).

What is recorded when is the runtime's; who may read it over HTTP, and in which form, is ``query``'s.
"""
