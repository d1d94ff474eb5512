"""The peer on Spark Structured Streaming: the same words, counted by ``groupBy().count()`` from topic to topic.

    python structured_wordcount.py SERVERS CHECKPOINT_FOLDER THREADS JARS SPARK_HOME

Ends with SIGTERM, or when its standard input is closed. Prints when the query starts, in seconds since 1970.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time


def main(servers: str, checkpoint: str, threads: str, jars: str, spark_home: str) -> None:
    os.environ["SPARK_HOME"] = spark_home
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    settings = {
        "spark.master": f"local[{threads}]",
        "spark.jars": jars,
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # As many partitions as cores: the default of 200 would make 200 small stores, and tasks, per batch.
        "spark.sql.shuffle.partitions": threads,
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # A batch writes its changes, not a snapshot of its store: quicker batches.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    builder = SparkSession.builder.appName("structured-wordcount")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "streams-plaintext-input")
        .option("startingOffsets", "earliest")
        # At a topic's end the connector otherwise waits for Kafka's half second in every batch.
        .option("kafka.fetch.max.wait.ms", "10")
        .load()
    )
    word = F.explode(F.split(F.lower(F.col("value").cast("string")), r"\W+")).alias("key")
    counts = lines.select(word).where("key != ''").groupBy("key").count()
    query = (
        counts.select("key", F.col("count").cast("string").alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "streams-wordcount-output")
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
        .start()
    )
    print(f"query started at {time.time():.3f}", flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def stop_when_closed() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=stop_when_closed, daemon=True).start()
    while not stop.wait(0.2) and query.isActive:
        pass
    if not stop.is_set():
        raise SystemExit(f"the query has ended by itself: {query.exception()}")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
