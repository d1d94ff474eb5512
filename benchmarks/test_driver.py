"""What a test with a TopologyTestDriver waits for: the session, a driver, and each record that is piped and read.

    python benchmarks/test_driver.py [--records 200] [--profile]

One process, as one run of pytest; the first program pays for Spark's session. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import time
from collections.abc import Callable, Sequence
from statistics import quantiles

from pyspark.sql import functions as F

from tidemill import JoinWindows, Serdes, StreamsBuilder, of_columns
from tidemill.testing import TopologyTestDriver

STRING, LONG = Serdes.string(), Serdes.long()
_WARM = 20
"""Records that are not counted: the JVM compiles what it has run a few times."""


def wordcount(builder: StreamsBuilder) -> None:
    """Columns, a repartition topic and a store: two batches for a record."""
    words = builder.stream("in", key=STRING, value=STRING).flat_map_values(lambda v: F.split(F.lower(v), " "))
    words.group_by(lambda _key, word: word, key=STRING).count(store="counts").to_stream().to("out", key=STRING, value=LONG)


def upper(builder: StreamsBuilder) -> None:
    """Columns only."""
    builder.stream("in", key=STRING, value=STRING).map_values(F.upper).to("out", key=STRING, value=STRING)


def join(builder: StreamsBuilder) -> None:
    """Python only: a stream joined with itself through two window stores."""
    left, right = builder.stream("in", key=STRING, value=STRING), builder.stream("other", key=STRING, value=STRING)
    joined = left.left_join(right, lambda one, other: f"{one}{other}", JoinWindows.of_time_difference(10))
    joined.to("out", key=STRING, value=STRING)


def column_reduce(builder: StreamsBuilder) -> None:
    """A reduce with a function of Columns: two Python steps with a layer between them."""
    values = builder.stream("in", key=STRING, value=STRING)
    values.group_by_key().reduce(of_columns(F.greatest), store="greatest").to_stream().to("out", key=STRING, value=STRING)


PROGRAMS: tuple[Callable[[StreamsBuilder], None], ...] = (upper, wordcount, join, column_reduce)


def measure(
    program: Callable[[StreamsBuilder], None], records: int, profile: cProfile.Profile | None
) -> tuple[float, list[float]]:
    """(seconds to a driver and its first record, ms of each further record from pipe to read)."""
    began = time.perf_counter()
    builder = StreamsBuilder()
    program(builder)
    took = []
    with TopologyTestDriver(builder) as driver:
        given = driver.create_input_topic("in", STRING, STRING)
        found = driver.create_output_topic("out", STRING, STRING)
        given.pipe_input("k", "some words", 0)
        first = time.perf_counter() - began
        for number in range(_WARM + records):
            if number == _WARM and profile is not None:
                profile.enable()
            before = time.perf_counter()
            given.pipe_input("k", f"some words {number}", number * 20)
            while not found.is_empty:
                found.read_record()
            took.append((time.perf_counter() - before) * 1e3)
        if profile is not None:
            profile.disable()
    return first, took[_WARM:]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--profile", action="store_true", help="what the driver's side of it spends its time on")
    chosen = parser.parse_args(arguments)
    print(f"load {os.getloadavg()[0]:.1f}\n")
    print("| program | driver and first record s | p50 ms | p95 ms | max ms |\n|---|---|---|---|---|")
    profile = cProfile.Profile() if chosen.profile else None
    for program in PROGRAMS:
        first, took = measure(program, chosen.records, profile)
        at = quantiles(took, n=20)
        print(f"| {program.__name__} | {first:.1f} | {at[9]:.0f} | {at[18]:.0f} | {max(took):.0f} |", flush=True)
    if profile is not None:
        pstats.Stats(profile).sort_stats("cumtime").print_stats(35)


if __name__ == "__main__":
    main(sys.argv[1:])
