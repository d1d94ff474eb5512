"""One instance of an application in a process of its own, to be killed or frozen by the tests.

Arguments: the program's name and the settings as JSON. Answers each line of its standard input with one line of JSON: ``look``
says how it stands, ``pause`` and ``resume`` do so and say it too, ``close`` closes it. Ends, with everything it started, when its
standard input ends.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time

from pyspark.sql import functions as F

from tests.runtime.shop import shop
from tidemill import Serdes, StreamsBuilder
from tidemill.errors import TidemillError
from tidemill.runtime.instance.application import KafkaStreams, State
from tidemill.runtime.worker.worker import Fault
from tidemill.task.lifecycle import Phase


def wordcount(input_topic: str, output_topic: str) -> StreamsBuilder:
    """The program of the demo, without ``lower``: Spark needs a second of processor time in each JVM before the first."""
    builder = StreamsBuilder()
    lines = builder.stream(input_topic, key=Serdes.string(), value=Serdes.string())
    words = lines.flat_map_values(lambda v: F.filter(F.split(v, r"\W+"), lambda w: w != ""))
    counts = words.group_by(lambda k, v: v).count(store="counts-store")
    counts.to_stream().to(output_topic, value=Serdes.long())
    return builder


def passing(input_topic: str, output_topic: str) -> StreamsBuilder:
    """Passes lines on; without state."""
    builder = StreamsBuilder()
    builder.stream(input_topic, key=Serdes.string(), value=Serdes.string()).to(output_topic)
    return builder


def shop_of(input_topic: str, _output_topic: str) -> StreamsBuilder:
    return shop(input_topic.removesuffix("-input"))


PROGRAMS = {"wordcount": wordcount, "passing": passing, "shop": shop_of}


def look(streams: KafkaStreams) -> dict[str, object]:
    """``state``: RUNNING only with the tasks that are shown; the instance's own follows its tasks a moment later.
    ``followed``: up to where a standby has followed its changelogs."""
    tasks = [task for thread in streams.threads for task in thread.tasks.values()]
    standbys = {str(task): held for thread in streams.threads for task, held in thread.standbys.items()}
    is_settled = all(task.phase is Phase.RUNNING for task in tasks)
    return {
        "state": streams.state.value if is_settled or streams.state is not State.RUNNING else State.REBALANCING.value,
        "server": streams.application_server,
        "workers": [thread.engine.worker_pids if thread.engine else {} for thread in streams.threads],
        "tasks": sorted(str(task.task) for task in tasks),
        "restoring": {str(copy.task): copy.lag for thread in streams.threads for copy in thread.copies if copy.is_active},
        "standbys": {task: held.lag for task, held in standbys.items()},
        "followed": {task: sum((held.stores or {}).values()) for task, held in standbys.items()},
        "batches": sum(thread.metrics.batches for thread in streams.threads),
        "records_in": sum(thread.metrics.records_in for thread in streams.threads),
        "restored": sum(thread.metrics.records_restored for thread in streams.threads),
        "lost": sum(thread.metrics.lost for thread in streams.threads),
        "skipped": sum(thread.metrics.skipped for thread in streams.threads),
        "dropped": sum(thread.metrics.dropped for thread in streams.threads),
    }


def read(streams: KafkaStreams, word: str) -> dict[str, object]:
    """The count of a word, and how many words there are, by store handle; or the error's sentence."""
    try:
        store = streams.store("counts-store")
        found = dict(store.all())
        return {"value": store.get(word), "words": len(found), "all": found, "entries": store.approximate_num_entries}
    except TidemillError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> int:
    asked = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("kafka").setLevel(logging.WARNING)
    builder = PROGRAMS[asked["program"]](asked["input"], asked["output"])
    streams = KafkaStreams(builder, asked["settings"], fault=Fault(folder=asked["orders"]))
    answering = threading.Lock()
    threading.Thread(target=_obey, args=(streams, answering), daemon=True).start()
    try:
        streams.start()
    except TidemillError as error:
        sys.stderr.write(f"tidemill: {type(error).__name__}: {error}\n")
        return 2
    while streams.state not in (State.ERROR, State.NOT_RUNNING):
        time.sleep(0.05)
    with answering:  # the process ends with the answer to who has closed it
        if streams.state is State.ERROR:
            sys.stderr.write(f"tidemill: {type(streams.error).__name__}: {streams.error}\n")
            return 1
        return 0


def _obey(streams: KafkaStreams, answering: threading.Lock) -> None:
    for line in sys.stdin:
        with answering:
            if line.strip() == "look":
                answer = look(streams)
            elif line.strip() in ("pause", "resume"):
                (streams.pause if line.strip() == "pause" else streams.resume)()
                answer = look(streams)
            elif line.startswith("read "):
                answer = read(streams, line.split()[1])
            else:
                answer = {"closed": streams.close(200)}
            print(json.dumps(answer), flush=True)
    os._exit(3)


if __name__ == "__main__":
    sys.exit(main())
