"""The flow network on graphs small enough to try all flows."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assignment.recorded import examples
from tidemill.assignment.rack.graph import FlowGraph


@st.composite
def layered_edges(draw):
    """Source 0, two layers, sink: (tail, head, capacity, cost)."""
    left, right = range(1, 3), range(3, 5)
    sink = 5
    pairs = [(0, node) for node in left] + list(product(left, right)) + [(node, sink) for node in right]
    capacity, cost = st.integers(0, 2), st.integers(-3, 5)
    middle = set(product(left, right))
    return sink, [(u, v, draw(capacity), draw(cost) if (u, v) in middle else 0) for u, v in pairs]


def all_flows(sink, edges):
    """(amount, cost) of every flow that keeps to the capacities."""
    for flow in product(*(range(capacity + 1) for _, _, capacity, _ in edges)):
        surplus = [0] * (sink + 1)
        for amount, (tail, head, _, _) in zip(flow, edges, strict=True):
            surplus[tail] -= amount
            surplus[head] += amount
        if not any(surplus[1:sink]):
            yield surplus[sink], sum(amount * cost for amount, (*_, cost) in zip(flow, edges, strict=True))


def cost_of(graph):
    """Edges are stored in pairs; the second of a pair holds the flow of the first."""
    flows, costs = graph._residual[1::2], graph._cost[0::2]
    return sum(flow * cost for flow, cost in zip(flows, costs, strict=True))


@settings(max_examples=examples(60), deadline=None)
@given(layered_edges())
def test_the_flow_is_the_greatest_and_of_the_greatest_the_cheapest(case):
    sink, edges = case
    graph = FlowGraph(sink + 1)
    for tail, head, capacity, cost in edges:
        graph.add_edge(tail, head, capacity=capacity, cost=cost)
    amount = graph.maximize_flow(0, sink)
    flows = list(all_flows(sink, edges))
    assert amount == max(flow for flow, _ in flows)
    graph.minimize_cost()
    assert cost_of(graph) == min(cost for flow, cost in flows if flow == amount)


def test_among_equally_short_paths_the_lowest_nodes_are_taken():
    graph = FlowGraph(6)
    for task in (1, 2):
        graph.add_edge(0, task, capacity=1)
        for client in (4, 3):
            graph.add_edge(task, client, capacity=1)
    assert graph.heads_with_flow(1) == []
    graph.add_edge(3, 5, capacity=1)
    graph.add_edge(4, 5, capacity=1)
    assert graph.maximize_flow(0, 5) == 2
    assert graph.heads_with_flow(1) == [3]
    assert graph.heads_with_flow(2) == [4]
