"""The hurried Bellman-Ford against the plain one, round for round."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assignment.recorded import examples
from tidemill.assignment.rack.relaxation import Relaxation


def plain(open_edges):
    """As many rounds as nodes over all edges, then the first relaxation of one more."""
    count = len(open_edges)
    distance, edge_into = [0] * count, [-1] * count
    for round_number in range(count + 1):
        for tail, edges in enumerate(open_edges):
            for node, cost, edge in edges:
                if distance[tail] + cost < distance[node]:
                    distance[node] = distance[tail] + cost
                    edge_into[node] = edge
                    if round_number == count:
                        return node, edge_into
    return None, edge_into


def graph_of(count, edges):
    by_tail = [{} for _ in range(count)]
    for tail, node, cost in edges:
        if tail != node:
            by_tail[tail][node] = cost
    numbers = iter(range(10_000))
    return [[(node, cost, next(numbers)) for node, cost in sorted(heads.items())] for heads in by_tail]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.integers(2, 40).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(
                st.tuples(st.integers(0, count - 1), st.integers(0, count - 1), st.integers(-3, 9)), max_size=4 * count
            ),
        )
    )
)
def test_the_first_node_of_the_last_round_and_the_ways_into_all_nodes_are_the_same(case):
    count, edges = case
    open_edges = graph_of(count, edges)
    search = Relaxation(open_edges)
    node = search.first_node_of_last_round()
    expected_node, expected_ways = plain(open_edges)
    assert node == expected_node
    if node is not None:
        assert search.edge_into == expected_ways


class CountingRelaxation(Relaxation):
    """Counts the rounds that are walked."""

    walked = 0

    def _round(self):
        self.walked += 1
        return super()._round()


def test_competing_cycles_are_followed_to_the_end_without_walking_most_rounds():
    chance = random.Random(5)
    walked = []
    for _ in range(60):
        count = 160
        edges = [(at, (at + 1) % 7, chance.choice((-1, 1, 1))) for at in range(7)]
        edges += [(at, 20 + (at - 19) % 5, chance.choice((-2, 1))) for at in range(20, 25)]
        edges += [(chance.randrange(count), chance.randrange(count), chance.randrange(0, 60)) for _ in range(500)]
        open_edges = graph_of(count, edges)
        search = CountingRelaxation(open_edges)
        node = search.first_node_of_last_round()
        expected_node, expected_ways = plain(open_edges)
        assert node == expected_node
        if node is not None:
            assert search.edge_into == expected_ways
            walked.append(search.walked)
    assert len(walked) > 10
    assert sorted(walked)[len(walked) // 2] < 80
