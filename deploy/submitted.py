"""An application file as a program of spark-submit: the session is the one that spark-submit has set up.

    spark-submit --properties-file deploy/spark-submit.conf --master spark://HOST:7077 \\
        deploy/submitted.py examples/wordcount.py bootstrap.servers=HOST:9092 num.stream.threads=2

Arguments after the application file are settings, and win over its ``config``. Ends in good order with SIGTERM or Ctrl-C, or with
an error if the instance can't go on.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading

from pyspark.sql import SparkSession

from tidemill import KafkaStreams, State, TidemillError
from tidemill.cli.application_file import load_application
from tidemill.config.texts import parse_assignments


def main() -> int:
    if len(sys.argv) < 2:
        sys.stderr.write("usage: spark-submit ... submitted.py APP.py [SETTING=VALUE ...]\n")
        return 2
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    wanted = threading.Event()
    try:
        topology, config = load_application(sys.argv[1], parse_assignments(sys.argv[2:]))
        session = SparkSession.builder.getOrCreate()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: wanted.set())
        with KafkaStreams(topology, config, session=session) as streams:
            while not wanted.wait(0.2) and streams.state not in (State.ERROR, State.NOT_RUNNING):
                pass
        session.stop()
    except TidemillError as error:
        sys.stderr.write(f"tidemill: {type(error).__name__}: {error}\n")
        return 2
    if streams.error is not None:
        sys.stderr.write(f"tidemill: {type(streams.error).__name__}: {streams.error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
