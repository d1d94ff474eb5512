"""Joins of tables by foreign key: each row of the left table names a key of the right one.

Decides the names of the eleven nodes, in Kafka Streams' order, and which topics must be copartitioned. The left side subscribes
to foreign keys through one internal topic; the right side answers through another.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.dsl.arguments import python_function, python_joiner, python_value_function
from tidemill.dsl.functions import value_serde_of
from tidemill.dsl.joined import TableJoined
from tidemill.dsl.materialized import Materialized, queryable_name, store_of
from tidemill.dsl.old_values import looked_up, send_old_values
from tidemill.dsl.serdes_foreign_key import SubscriptionResponseSerde, SubscriptionSerde
from tidemill.dsl.table import KTable
from tidemill.topology import join_operations as join_op
from tidemill.topology import operations as op
from tidemill.topology.functions import UserFunction
from tidemill.topology.logical import LogicalNode, Process, Sink, StreamSource
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.partitioning import Partitioning, WithoutValue

_FK = "KTABLE-FK-JOIN-"


def join_on_foreign_key(
    left: KTable,
    right: KTable,
    extractor: UserFunction,
    joiner: UserFunction,
    joined: TableJoined,
    asked: Materialized | None,
    *,
    keeps_left: bool,
) -> KTable:
    """The table, by the left keys, of ``joiner(left, right)``; ``keeps_left``: also of left rows without a right one."""
    recorder, name = left.recorder, joined.name
    operator = "left_join" if keeps_left else "join"
    serde = value_serde_of(joiner)
    function, takes_key = python_joiner(joiner, operator)
    extract, extracts_by_key = python_value_function(extractor, f"{operator}: foreign_key")
    send_old_values(recorder, right.node)
    send_old_values(recorder, left.node)

    def named(prefix: str, suffix: str) -> str:
        return recorder.node_name(prefix, name, suffix=suffix)

    topic = named(f"{_FK}SUBSCRIPTION-REGISTRATION-", "-subscription-registration") + "-topic"
    subscribe = join_op.ForeignKeySubscribe(
        extract, extracts_by_key, keeps_left, right.key_serde, left.value_serde, left.key_serde
    )
    sent = recorder.add(LogicalNode(
        name=named(f"{_FK}SUBSCRIPTION-REGISTRATION-", "-subscription-registration-processor"),
        effect=Process(operation=subscribe, key_serde=right.key_serde, value_serde=SubscriptionSerde(left.key_serde)),
    ), left.node)
    sink = recorder.add(LogicalNode(
        name=named("KTABLE-SINK-", "-subscription-registration-sink"),
        effect=Sink(
            topic=topic, is_internal=True, key_serde=right.key_serde, value_serde=SubscriptionSerde(left.key_serde),
            partitioner=_without_value(joined.other_partitioner, "joined.other_partitioner"),
        ),
    ), sent)
    source_name = named("KTABLE-SOURCE-", "-subscription-registration-source")
    source = recorder.add(LogicalNode(name=source_name, effect=StreamSource(
        topics=(topic,), key_serde=right.key_serde, value_serde=SubscriptionSerde(left.key_serde)
    )), sink)
    recorder.copartition(right.sources | {source_name})
    answered = _add_right_side(left, right, source, name)
    response_source = _add_responses(left, right, answered, joined)
    response_name = recorder.graph.nodes[response_source].name
    sources = left.sources | {response_name}
    recorder.copartition(sources)
    resolve = join_op.ForeignKeyResolve(
        left.name, recorder.graph.nodes[sent].name, function, takes_key, keeps_left, left.value_serde
    )
    resolved = recorder.add(LogicalNode(
        name=named(f"{_FK}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-", "-subscription-response-resolver"),
        effect=Process(operation=resolve, uses=looked_up(recorder, left.node), key_serde=left.key_serde, value_serde=serde),
    ), response_source)
    made = named(f"{_FK}OUTPUT-", "-result")
    kept = store_of(recorder, asked, f"{_FK}OUTPUT-", key=left.key_serde, value=serde)
    queryable = queryable_name(asked)
    node = recorder.add(LogicalNode(name=made, effect=Process(
        operation=op.TableSource(queryable), store=None if queryable is None else kept, spare_store=kept,
        key_serde=kept.key_serde, value_serde=kept.value_serde,
    )), resolved)
    return replace(
        left, node=node, name=made, sources=sources, key_serde=kept.key_serde, value_serde=kept.value_serde,
        store_name=queryable,
    )


def _without_value(partitioner: UserFunction | None, what: str) -> WithoutValue | None:
    if partitioner is None:
        return None
    return WithoutValue(python_function(partitioner, ("topic", "key", "value", "partitions"), what))


def _add_right_side(left: KTable, right: KTable, source: int, name: str | None) -> tuple[int, int]:
    """The nodes that keep subscriptions and answer them, at once and when the right table changes; gives the two that answer."""
    recorder = left.recorder
    processor = f"{_FK}SUBSCRIPTION-PROCESSOR-"
    store = Store(
        name=recorder.node_name(f"{_FK}SUBSCRIPTION-STATE-STORE-", name, suffix="-subscription-store"),
        kind=StoreKind.SUBSCRIPTIONS, key_serde=right.key_serde, value_serde=SubscriptionSerde(left.key_serde), caching=False,
        left_open=frozenset({"persistent"}),
    )
    received = recorder.add(LogicalNode(
        name=recorder.node_name(processor, name, suffix="-subscription-receive"),
        effect=Process(operation=join_op.ForeignKeyReceive(store.name), store=store),
    ), source)
    looks_up = Process(
        operation=join_op.ForeignKeyLookup(right.name), uses=looked_up(recorder, right.node), key_serde=left.key_serde,
        value_serde=SubscriptionResponseSerde(right.value_serde),
    )
    found = recorder.add(LogicalNode(
        name=recorder.node_name(processor, name, suffix="-subscription-join-foreign"), effect=looks_up
    ), received)
    changed = recorder.add(LogicalNode(
        name=recorder.node_name(processor, name, suffix="-foreign-join-subscription"),
        effect=Process(
            operation=join_op.ForeignKeyChange(store.name), uses=(store.name,), key_serde=left.key_serde,
            value_serde=SubscriptionResponseSerde(right.value_serde),
        ),
    ), right.node)
    return found, changed


def _add_responses(left: KTable, right: KTable, answered: tuple[int, int], joined: TableJoined) -> int:
    """The topic of the answers; the node that reads it. Answers go to the partition that the subscription came from."""
    recorder, name = left.recorder, joined.name
    prefix = f"{_FK}SUBSCRIPTION-RESPONSE-"
    topic = recorder.node_name(prefix, name, suffix="-subscription-response") + "-topic"
    serde = SubscriptionResponseSerde(right.value_serde)
    sink = recorder.add(LogicalNode(
        name=recorder.node_name("KTABLE-SINK-", name, suffix="-subscription-response-sink"),
        effect=Sink(
            topic=topic, is_internal=True, key_serde=left.key_serde, value_serde=serde,
            partitioner=_without_value(joined.partitioner, "joined.partitioner"),
            partitioning=Partitioning.BY_SUBSCRIPTION,
        ),
    ), *answered)
    return recorder.add(LogicalNode(
        name=recorder.node_name("KTABLE-SOURCE-", name, suffix="-subscription-response-source"),
        effect=StreamSource(topics=(topic,), key_serde=left.key_serde, value_serde=serde),
    ), sink)
