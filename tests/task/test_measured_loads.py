"""Loads as a member measures them: arrivals, not what is processed; remembered for a while; worth a rebalance when changed."""

from tidemill.assignment.task_load import TaskLoad, level
from tidemill.ids import TaskId, TopicPartition
from tidemill.task.measured_loads import MEASURE_INTERVAL_S, REMEMBERED_S, MeasuredLoads

HOT, COLD = TaskId(0, 0), TaskId(0, 1)
INPUTS = {HOT: (TopicPartition("in", 0), TopicPartition("also", 0)), COLD: (TopicPartition("in", 1),)}


def looks(rates, count=2, loads=None, state=None):
    """Looks at intervals while each partition gets so many records per second."""
    loads = loads or MeasuredLoads()
    start = 0.0 if loads.measured_at_s is None else loads.measured_at_s + MEASURE_INTERVAL_S
    for number in range(count):
        now_s = start + number * MEASURE_INTERVAL_S
        ends = {partition: 1_000_000 + int(now_s * rates.get(partition, 0)) for own in INPUTS.values() for partition in own}
        loads = loads.measure(now_s, INPUTS, ends, state or {})
    return loads


def test_a_load_is_known_after_two_looks_and_counts_all_inputs():
    rates = {TopicPartition("in", 0): 300, TopicPartition("also", 0): 100, TopicPartition("in", 1): 10}
    assert looks(rates, 1).loads(0) == {}
    loads = looks(rates, state={COLD: 4096 * 1024}).loads(MEASURE_INTERVAL_S)
    assert loads == {HOT: TaskLoad(records=level(400), state=0), COLD: TaskLoad(records=level(10), state=24)}


def test_a_partition_whose_end_is_not_known_leaves_its_task_unmeasured():
    first = MeasuredLoads().measure(0, INPUTS, {TopicPartition("in", 1): 0}, {})
    second = first.measure(30, INPUTS, {TopicPartition("in", 0): 9, TopicPartition("in", 1): 300}, {})
    assert second.loads(30) == {COLD: TaskLoad(records=level(10))}
    assert second.measure(60, INPUTS, {}, {}).loads(60) == second.loads(30)


def test_a_look_is_due_at_first_and_then_an_interval_after_the_last():
    loads = MeasuredLoads()
    assert loads.is_due(0)
    looked = loads.measure(100, INPUTS, {}, {})
    assert [looked.is_due(100 + passed_s) for passed_s in (0, MEASURE_INTERVAL_S - 1, MEASURE_INTERVAL_S)] == [False, False, True]


def test_noise_changes_no_load_and_a_lasting_change_does():
    rates = {TopicPartition("in", 1): 100}
    steady = looks(rates, 5)
    noisy = looks({TopicPartition("in", 1): 108}, 5, steady)
    assert noisy.loads(0) == steady.loads(0)
    assert looks({TopicPartition("in", 1): 1_000}, 40, steady).loads(0)[COLD].records > steady.loads(0)[COLD].records + 4


def test_a_first_measure_at_a_slow_moment_counts_no_more_than_the_next_ones():
    loads, [partition] = MeasuredLoads(), INPUTS[COLD]
    for number, end in enumerate([0, 0, 12_000, 24_000, 36_000, 48_000]):
        loads = loads.measure(number * MEASURE_INTERVAL_S, INPUTS, {partition: end}, {})
    assert loads.loads(0)[COLD].records >= level(320) - 1


def test_a_task_that_went_elsewhere_is_remembered_for_a_while():
    loads = looks({TopicPartition("in", 0): 500})
    gone = loads.measure(2 * MEASURE_INTERVAL_S, {}, {}, {})
    assert HOT in gone.loads(2 * MEASURE_INTERVAL_S)
    assert gone.loads(MEASURE_INTERVAL_S + REMEMBERED_S) == {}


def test_it_asks_when_what_it_carries_has_changed_since_the_last_join():
    loads = looks({TopicPartition("in", 0): 100, TopicPartition("in", 1): 100})
    assert loads.is_worth_a_rebalance([HOT, COLD]), "nothing was said yet"
    said = loads.joins([HOT, COLD])
    assert not said.is_worth_a_rebalance([HOT, COLD])
    assert said.is_worth_a_rebalance([HOT]), "half of it went elsewhere"
    hotter = looks({TopicPartition("in", 0): 1_000, TopicPartition("in", 1): 100}, 30, said)
    assert hotter.is_worth_a_rebalance([HOT, COLD])
    assert not MeasuredLoads().is_worth_a_rebalance([HOT])
