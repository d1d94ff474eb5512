"""What a class of the API says of a name that it does not have, Kafka Streams' Java spelling or another class's method, and of a
call with arguments that it does not take.

Decides the sentences only: whoever asks gets an AttributeError or a TypeError, as of any class. Classes take part by deriving
from ``Spelled``, or from ``SpelledEnum``; named tuples, for their names, by the decorator ``spelled``.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum, EnumMeta
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Named = TypeVar("Named", bound=tuple[object, ...])

_GIVEN_BY = {
    "KStream": "builder.stream(...) and table.to_stream() give",
    "KTable": "builder.table(...), stream.to_table() and count, reduce or aggregate give",
    "KGroupedStream": "stream.group_by_key() and stream.group_by(...) give",
    "KGroupedTable": "table.group_by(...) gives",
    "TimeWindowedKStream": "grouped.windowed_by(TimeWindows...) gives",
    "SessionWindowedKStream": "grouped.windowed_by(SessionWindows...) gives",
    "CogroupedKStream": "grouped.cogroup(...) gives",
    "BranchedKStream": "stream.split() gives",
    "StreamsBuilder": "the program makes",
    "KafkaStreams": "the program makes: KafkaStreams(builder, config)",
    "TopologyBuilder": "the program makes, for processors without the DSL",
}
"""The classes whose methods are looked for, the likeliest first, and where their objects come from."""
_WITH_THE_STORE = "metadata_for_all_streams_clients(), of which those are meant that have it in state_store_names"
_WHERE_MADE = "process(lambda: MyProcessor(config), ...): the supplier gives the processor what it needs of the program"
_RENAMED = {
    "read_key_values_to_map": "read_key_values_to_dict",
    "get_all_state_stores": "store(name) of each in store_kinds",
    "describe": "describe() of the Topology that build() gives",
    "through": "repartition(), or to(topic) and builder.stream(topic)",
    "transform": "process(supplier)",
    "KTable.transform": "transform_values(supplier)",
    "flat_transform": "process(supplier)",
    "transform_values": "process_values(supplier)",
    "flat_transform_values": "process_values(supplier)",
    "serde_from": "an object of your own with name, sql_type, serialize and deserialize",
    "list_serde": "a field of a document, json('items array<...>'), or an object of your own with serialize and deserialize",
    "branch": "split().branch(predicate, ...)",
    "with_": "the arguments key= and value= of the method that takes them",
    "as_": "name= of the method",
    "until": "Materialized(retention=...)",
    "buffer_config": "max_records= and max_bytes= of until_window_closes and until_time_limit",
    "all_metadata": "metadata_for_all_streams_clients()",
    "all_metadata_for_store": _WITH_THE_STORE,
    "streams_metadata_for_store": _WITH_THE_STORE,
    "byte_array": "bytes",
    "avro": "SchemaRegistry(url).avro(schema)",
    "protobuf": "SchemaRegistry(url).protobuf(Message)",
    "with_caching_disabled": "caching=False",
    "with_caching_enabled": "caching=True, the default",
    "with_logging_disabled": "logged=False",
    "with_logging_enabled": "changelog_config=",
    "reverse_range": "range(low, high, reverse=True)",
    "reverse_all": "all(reverse=True)",
    "backward_fetch": "fetch_range(key, first, last, reverse=True), or fetch(key, reverse=True) of sessions",
    "backward_all": "all(reverse=True)",
    "advance_by": "advance= of of_size",
    "start_on": "of(start=...)",
    "lru_map": "key_value_store, and a processor that deletes",
    "with_store_type": "persistent=",
    "with_dsl_store_suppliers": "persistent=",
    "query": "store, window_store, session_store or versioned_store, whose methods are the queries",
    "Windowed.window": "start and end",
    "topic": "record_metadata.topic",
    "partition": "record_metadata.partition",
    "offset": "record_metadata.offset",
    "host_info": "host",
    "port": "host.port",
    "processor_node_id": "node",
    "source_raw_key": "key of the record that the handler gets",
    "source_raw_value": "value of the record that the handler gets",
    "get_value_or_null": "value",
    "make": "ValueAndTimestamp(value, timestamp_ms)",
    "empty_position": "Position()",
    "from_map": "Position({partition: offset})",
    "get_partition_positions": "offsets",
    "Position.is_empty": "not position.offsets",
    "is_running_or_rebalancing": "state in (State.RUNNING, State.REBALANCING)",
    "is_shutting_down": "state in (State.PENDING_SHUTDOWN, State.PENDING_ERROR)",
    "has_completed_shutdown": "state in (State.NOT_RUNNING, State.ERROR)",
    "has_not_started": "state is State.CREATED",
    "has_started_or_finished_shutting_down": "state not in (State.CREATED, State.RUNNING, State.REBALANCING)",
    "topic_group_id": "subtopology",
    "num_processing_threads": "capacity",
    "lag_for": "lags",
    "stateful_tasks_to_lag_sums": "lags",
    "client_tags": "tags",
    "kafka_streams_states": "clients",
    "assignment_configs": "config",
    "assign_task": "active= and standby= where the ClientAssignment is made",
    "remove_task": "active= and standby= where the ClientAssignment is made",
    "random_process_id": "ProcessId.of(uuid.uuid4())",
    "app_configs": _WHERE_MADE,
    "app_configs_with_prefix": _WHERE_MADE,
    "application_id": _WHERE_MADE,
    "state_dir": _WHERE_MADE,
    "keySerde": "key= of the method",
    "valueSerde": "value= of the method",
    "with_time_difference_and_grace": "of_time_difference with grace=",
}
"""Methods of Kafka Streams' that have no counterpart of their name."""
_OF_DATAFRAMES = {
    "where": "filter(lambda key, value: ...)",
    "select": "map_values(lambda value: ...)",
    "select_expr": "map_values(lambda value: ...)",
    "with_column": "map_values(lambda value: ...), as with value.withField(name, column)",
    "with_columns": "map_values(lambda value: ...), as with value.withField(name, column)",
    "drop": "map_values(lambda value: ...), as with value.dropFields(name)",
    "union": "merge",
    "union_all": "merge",
    "union_by_name": "merge",
    "drop_duplicates": "process(supplier), with a store of what was seen",
    "show": "print()",
    "agg": "group_by_key() or group_by(...), and then count, reduce or aggregate",
    "with_watermark": "group_by_key().windowed_by(windows), with their grace=",
    **dict.fromkeys(("write_stream", "write", "write_to", "merge_into"), "to(topic), or foreach_batch(function)"),
    "map_in_arrow": "map(per_batch(function)), or map_values of one",
    "map_in_pandas": "map(per_batch(function)), or map_values of one",
    "apply_in_pandas_with_state": "process(supplier)",
    "transform_with_state": "process(supplier)",
    "dtypes": "key_serde and value_serde",
    "schema": "key_serde and value_serde",
    "print_schema": "key_serde and value_serde",
    "explode": "flat_map_values(lambda value: ...), whose function gives an array",
    "window": "group_by_key().windowed_by(windows)",
    **dict.fromkeys(("distinct", "drop_duplicates_within_watermark"), "process(supplier), with a store of what was seen"),
    **dict.fromkeys(
        (
            "to_pandas", "to_arrow", "pandas_api", "collect", "to_local_iterator", "order_by", "sort", "sort_within_partitions",
            "rdd", "spark_session", "foreach_partition", "summary", "stat", "approx_quantile", "corr", "cov", "crosstab",
            "freq_items",
            "create_temp_view", "create_or_replace_temp_view", "create_global_temp_view", "create_or_replace_global_temp_view",
        ),
        "foreach_batch(function), which gets DataFrames, one for each micro-batch",
    ),
    **dict.fromkeys(
        ("limit", "head", "take", "first", "tail", "offset", "zip_with_index"), "process(supplier), with a store that counts"
    ),
    **dict.fromkeys(
        ("sample", "sample_by", "random_split"),
        "filter(lambda key, value: F.pmod(F.xxhash64(key), F.lit(100)) < 10), the same if a batch runs again",
    ),
    **dict.fromkeys(
        ("with_column_renamed", "with_columns_renamed", "to_df"),
        'map_values(lambda value: ...), as with F.struct(value["old"].alias("new"))',
    ),
    **dict.fromkeys(
        ("cache", "persist", "checkpoint", "local_checkpoint"), "to_table(store=...), which keeps the last value of each key"
    ),
    **dict.fromkeys(("unpivot", "melt"), "flat_map_values(lambda value: ...), whose function gives an array"),
    **dict.fromkeys(
        ("cube", "rollup", "grouping_sets"), "flat_map(lambda key, value: ...), with a key for each group, and group_by_key()"
    ),
    **dict.fromkeys(("except_all", "subtract"), "left_join with a table, and filter of what has no row there"),
    **dict.fromkeys(("intersect", "intersect_all"), "join with a table"),
    **dict.fromkeys(("cross_join", "lateral_join"), "join with a table, or join_dataframe(frame, joiner, on=...)"),
    "coalesce": "repartition(partitions=...)",
    "columns": "key_serde and value_serde",
    "to_json": "to(topic, value=Serdes.json(schema)), or map_values(lambda value: F.to_json(value))",
    "replace": "map_values(lambda value: F.when(value == old, new).otherwise(value))",
    "explain": "tidemill explain-plan app.py, in a shell",
    "alias": "name= of the operator",
    "na": "filter(lambda key, value: value.isNotNull()), or map_values(lambda value: F.coalesce(value, F.lit(...)))",
    "dropna": "filter(lambda key, value: value.isNotNull())",
    "fillna": "map_values(lambda value: F.coalesce(value, F.lit(...)))",
    **dict.fromkeys(("sum", "min", "max", "avg", "mean"), "group_by_key() or group_by(...), and then aggregate(*Aggregators...)"),
}
"""Methods of Spark's DataFrames, and what does the same with a KStream or KTable."""
_GROUPED = ("KGroupedStream", "TimeWindowedKStream", "SessionWindowedKStream")
_OF_GROUPED = {
    "first": "reduce(lambda first, value: first)",
    "last": "reduce(lambda first, value: value)",
    "pivot": "aggregate(initializer, aggregator), whose aggregate has a field for each",
    **dict.fromkeys(
        ("apply_in_pandas", "apply_in_arrow", "apply_in_pandas_with_state", "transform_with_state"),
        "aggregate(initializer, aggregator), or before the group map_values(per_batch(function))",
    ),
}
"""Methods of Spark's grouped DataFrames, and what does the same with a grouped stream."""
_AGGREGATORS = {
    "agg": "sum(Serdes.double(), lambda value: ...)",
    **{name: f"{name}(Serdes.double(), lambda value: ...)" for name in ("sum", "min", "max")},
    **dict.fromkeys(("avg", "mean"), "mean(lambda value: ...)"),
    "collect_list": 'collect("string", lambda value: ...)',
    "collect_set": 'collect("string", lambda value: ..., distinct=True)',
    **dict.fromkeys(("count_distinct", "approx_count_distinct"), "approx_count_distinct(lambda value: ...)"),
}
"""Methods and functions of Spark for grouped DataFrames, and the ready-made aggregator that does the same."""
_WITH = {"KGroupedTable": ", total.subtractor", "SessionWindowedKStream": ", total.merger"}
"""What ``aggregate`` of a class takes after the aggregator."""
_MADE_BY = {"with_": ("key", "value", "other_value", "partitioner", "other_partitioner"), "as_": ("name",)}
"""Java's factories of descriptions, and which arguments of the class are in their place."""
_WRITES = ("put", "put_all", "put_if_absent", "delete", "remove")
_BY_ARGUMENT = {
    "in_memory": "persistent=False", "and_grace": "grace=", "timestamped_window": "timestamped=True", "backward": "reverse=True",
}  # fmt: skip
"""Arguments that replace a part of Java's names."""
_SHORT = 4
"""A name of at most this many characters is part of others by chance."""
_LONG = 300
"""Characters of a function's arguments that a message shows."""


class UnknownNameError(AttributeError):
    """A class has no such name. The sentence is made when it is read: Python itself asks for names that may be missing."""

    def __init__(self, asked: object, name: str) -> None:
        super().__init__(name=name, obj=asked)
        self._of = asked, name

    def __str__(self) -> str:
        asked, name = self._of
        cls = asked if isinstance(asked, type) else type(asked)
        return f"{cls.__name__} has no {name}{_instead(cls, name, _names(asked))}"

    def __reduce__(self) -> tuple[type[AttributeError], tuple[str]]:
        return AttributeError, (str(self),)  # what was asked may be bound to its process


def _names(asked: object) -> list[str]:
    of_base = dir(tuple) if issubclass(asked if isinstance(asked, type) else type(asked), tuple) else ()
    return [each for each in dir(asked) if not each.startswith("_") and each not in of_base]


def _instead(cls: type, name: str, own: list[str]) -> str:
    if cls.__name__ == "StreamsConfig" and name.isupper():
        return ': settings and their values are named by their text, such as "processing.guarantee" and "exactly_once_v2"'
    plain = _plain(name)
    if cls.__name__ == "TopologyTestDriver" and plain == "metrics":
        return ": write dropped or skipped"
    for each in (plain, plain.upper()):  # a member of an enum
        if each != name and each in own:
            return f": write {each}"
    if name in _MADE_BY and (taken := [each for each in _MADE_BY[name] if each in inspect.signature(cls).parameters]):
        return f": write {cls.__name__}({', '.join(f'{each}=...' for each in taken)})"
    if cls.__name__ == "SessionWindows" and plain == "with":
        return ": write of_inactivity_gap"
    if cls.__name__ in ("KStream", "KTable") and (alike := _OF_DATAFRAMES.get(plain)):
        method = re.split(r"\W", alike)[0]
        if method in own or method in ("tidemill", "name"):
            return f": write {alike}"
        if method not in ("group_by_key", "to_table", "merge"):  # these do something else with a table's changes
            return f": write to_stream().{alike}"
    if cls.__name__ in _GROUPED and (alike := _OF_GROUPED.get(plain)) and re.split(r"\W", alike)[0] in own:
        return f": write {alike}"
    has_subtractor = plain in ("agg", "sum", "avg", "mean")
    if plain in _AGGREGATORS and (has_subtractor or cls.__name__ != "KGroupedTable") and {"aggregate", "reduce"}.issubset(own):
        made = f"Aggregators.{_AGGREGATORS[plain]}"
        second = _WITH.get(cls.__name__)
        return f": write aggregate(*total{second}), with total = {made}" if second else f": write aggregate(*{made})"
    renamed = _RENAMED.get(f"{cls.__name__}.{plain}") or _RENAMED.get(name) or _RENAMED.get(plain)
    if renamed is not None and (renamed in own or not renamed.isidentifier()):
        return f": write {renamed}"
    if cls.__name__.startswith("ReadOnly") and plain in _WRITES:
        return ": write a processor for that, what reads a store from outside changes nothing"
    if (argument := re.sub("^with_|_serde$", "", plain)) != plain and argument in inspect.signature(cls).parameters:
        return f": write {argument}= where the {cls.__name__} is made"
    within = max((each for each in own if _is_within(each, plain) and len(each) > _SHORT), key=len, default=None)
    if within is not None:  # of_size of ofSizeWithNoGrace, set_state_restore_listener of setGlobalStateRestoreListener
        said = [
            argument for part, argument in _BY_ARGUMENT.items()
            if part in plain and part not in within and _takes(cls, within, argument.partition("=")[0])
        ]  # fmt: skip
        return f": write {within}{''.join(f' with {each}' for each in said)}"
    without = re.sub("^(get|is)_", "", plain)
    for each in (without, f"{without}_ms"):
        if each in own:
            return f": write {each}"
    if issubclass(cls, Enum):
        begun = [each for each in own if each.startswith(plain.upper())]
        return f": write {' or '.join(begun)}" if begun else f"; it has {', '.join(own)}"
    of_its_kind = sorted(_GIVEN_BY.items(), key=lambda given: ("Table" in given[0]) != ("Table" in cls.__name__))
    for other, origin in of_its_kind:
        if other != cls.__name__ and plain in dir(getattr(sys.modules[__package__], other)):  # it loads what it exports
            return f": {plain} is a method of {other}, which {origin}"
    begun = [each for each in own if each.startswith(f"{plain}_")]
    if begun:
        return f": write {' or '.join(begun)}"
    near = difflib.get_close_matches(plain, own, n=3, cutoff=0.6)
    return f": did you mean {' or '.join(near)}?" if near else f"; it has {', '.join(own)}"


def _takes(cls: type, method: str, argument: str) -> bool:
    found = getattr(cls, method, None)
    return found is None or not callable(found) or argument in inspect.signature(found).parameters


def _plain(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().rstrip("_")


def _is_within(short: str, name: str) -> bool:
    """True if all words of ``short`` are in ``name``, in their order."""
    words = iter(name.split("_"))
    return all(word in words for word in short.split("_"))


# --- calls ------------------------------------------------------------------------------------------------------------


def _answered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; a call with arguments that it does not take is answered with those that it takes."""

    @wraps(function)
    def call(*args: object, **named: object) -> Any:
        try:
            return function(*args, **named)
        except TypeError:
            _refuse_misfit(function, args, named)
            raise

    return call


def _refuse_misfit(function: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object]) -> None:
    """TypeError if a function or class does not take these arguments; else it has raised one itself."""
    problem = _why_not(function, args, named)
    if problem:
        taken = f"{function.__qualname__}{signature_of(function)}"
        shown = taken if len(taken) <= _LONG else f"{taken[:_LONG]} ..."
        by_name = ", what follows * by its name" if problem.startswith("too many") and "*, " in shown else ""
        others = "".join(f", or {other}" for other in _others(function, args, named))
        parameters = inspect.signature(function).parameters
        is_serde = "store" in parameters and any(name in named and name not in parameters for name in ("key", "value"))
        serdes = "; give serdes in store=Materialized(key=..., value=...)" if is_serde else ""
        raise TypeError(f"{function.__qualname__}: {problem}; expected {shown}{by_name}{others}{serdes}") from None


def _why_not(function: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object]) -> str:
    try:
        inspect.signature(function).bind(*args, **named)
    except TypeError as problem:
        return str(problem)
    return ""


def _others(function: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object]) -> list[str]:
    """The functions that take these arguments in place of ``function``: of a class, those that make one; of a method, those whose
    names begin with its own, for Java's overloads (``fetch_range`` of ``fetch(key, first, last)``)."""
    if isinstance(function, type):
        makers = {name for name, found in vars(function).items() if isinstance(found, (classmethod, staticmethod))}
        return [
            f"{function.__name__}.{name}" for name in sorted(makers)
            if not name.startswith("_") and not _why_not(getattr(function, name), args, named)
        ]  # fmt: skip
    first = list(inspect.signature(function).parameters)[:2]
    methods = [
        (name, found) for name, found in vars(type(args[0]) if args else object).items()
        if name.startswith(f"{function.__name__}_") and isinstance(found, FunctionType)
    ]  # fmt: skip
    return [
        name for name, found in methods
        if list(inspect.signature(found).parameters)[:2] == first and not _why_not(found, args, named)
    ]  # fmt: skip


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """What a function or class takes, without types and without the object that a method is of."""
    found = inspect.signature(function)
    parameters = [each.replace(annotation=each.empty) for each in found.parameters.values() if each.name not in ("self", "cls")]
    return found.replace(parameters=parameters, return_annotation=found.empty)


class _SpelledType(type):
    def __call__(cls, *args: object, **named: object) -> Any:
        try:
            return super().__call__(*args, **named)
        except TypeError:
            _refuse_misfit(cls, args, named)
            raise

    @property
    def __signature__(cls) -> inspect.Signature:
        """Not that of ``__call__``."""
        found = inspect.signature(cls.__init__)  # type: ignore[misc]
        return found.replace(parameters=list(found.parameters.values())[1:], return_annotation=found.empty)

    if not TYPE_CHECKING:  # a type checker would take any name for an attribute

        def __getattr__(cls, name: str) -> object:
            raise UnknownNameError(cls, name)


class Spelled(metaclass=_SpelledType):
    """Its AttributeErrors say what to write, and the TypeErrors of calls which arguments are taken.

    ``_is_hot`` True: its methods are called for each record and stay as they are.
    """

    __slots__ = ()
    _is_hot: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, found in list(vars(cls).items()):
            inner = getattr(found, "__func__", found)
            if name.startswith("_") or not isinstance(inner, FunctionType) or hasattr(inner, "__wrapped__"):
                continue
            if found is not inner:  # a static method, or one of the class
                setattr(cls, name, type(found)(_answered(inner)))
            elif not cls._is_hot:
                setattr(cls, name, _answered(inner))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise UnknownNameError(self, name)  # not its class: some methods are an object's own, as of a processor's store


class _SpelledEnumType(EnumMeta):
    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> object:
            members = cls.__dict__.get("_member_map_", {})
            if name in members:  # Python before 3.12 looks for them here
                return members[name]
            raise UnknownNameError(cls, name)


class SpelledEnum(Enum, metaclass=_SpelledEnumType):
    """An enum whose AttributeErrors, and its members', say what to write."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise UnknownNameError(type(self), name)


def spelled(cls: type[Named]) -> type[Named]:
    """A decorator for named tuples, which can't derive from ``Spelled``."""

    def refuse(self: object, name: str) -> object:
        raise UnknownNameError(type(self), name)

    cls.__getattr__ = refuse  # type: ignore[attr-defined]  # in the class, a type checker would take any name for an attribute
    return cls


# --- numbers that are methods in Java ---------------------------------------------------------------------------------


class _Number(int):
    """A field of an object of the class ``made``; a call of it, which Java writes, is answered with what to write. As it is
    pickled it is an int."""

    made: type
    name: str
    maker: str

    def __call__(self, *args: object, **named: object) -> NoReturn:
        """Raises TypeError."""
        cls, maker = self.made.__name__, getattr(self.made, self.maker)
        instead = f"write {self.name}, without ()"
        if (args or named) and self.name in inspect.signature(maker).parameters:
            instead = f"write {self.name}= in {cls}.{self.maker}{signature_of(maker)}"
        raise TypeError(f"{cls}.{self.name} is a number, {int(self)}, and no method: {instead}")

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def set_numbers(of: DataclassInstance, maker: str) -> None:
    """Lets the fields of a dataclass, all of them numbers, answer a call. For its ``__post_init__``. ``maker``: the name of the
    method that makes such an object."""
    for field in fields(of):
        given = getattr(of, field.name)
        if given is not None:
            number = _Number(given)
            number.made, number.name, number.maker = type(of), field.name, maker
            object.__setattr__(of, field.name, number)
