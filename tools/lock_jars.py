"""Writes src/tidemill/embedded/jars.lock: every jar of every bundle, with its checksum.

Run it after changing a version in BUNDLES: ``.venv/bin/python tools/lock_jars.py``. It lets Ivy resolve what the named
roots need and records exactly that; the program itself then fetches only what is recorded, and resolves nothing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from tidemill.embedded.jars import LOCK_FILE, ivy_jar
from tidemill.embedded.java import java_candidates

LOG4J = "2.25.4"  # what Kafka itself brings: one version for all of log4j's parts
LOGGING = [
    f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",
    f"org.apache.logging.log4j:log4j-core:{LOG4J}",
]
BUNDLES = {
    # 4.3.0, 4.3.1 and 4.4.0 drop transaction markers that are due while a partition has no leader (KAFKA-20734).
    "broker": ["org.apache.kafka:kafka_2.13:4.2.1", f"org.apache.logging.log4j:log4j-1.2-api:{LOG4J}", *LOGGING],
    # The examples bring Kafka's own WordCount: benchmarks need no Java compiler.
    "kafka-streams": ["org.apache.kafka:kafka-streams:4.3.1", "org.apache.kafka:kafka-streams-examples:4.3.1", *LOGGING],
}
EXACT_BUNDLES = {
    # Spark's Kafka connector, for benchmarks: beside pyspark's own jars nothing but these. The registry has no token
    # provider of this version, so the one of 4.0.0 is named; it must not bring its Spark with it.
    "spark-kafka": [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ],
}
HEADER = """\
# The jars that Tidemill fetches: bundle, group:artifact:version, sha256. Written by tools/lock_jars.py.
"""


def resolved(bundle: str, roots: list[str], java: Path, what: str = 'conf="default->default"') -> list[str]:
    """The lines of one bundle: the roots as given (an error names the first), then what they need, sorted."""
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" {what}/>'
        for group, name, version in (root.split(":") for root in roots)
    )
    with tempfile.TemporaryDirectory() as folder:
        descriptor = Path(folder, "ivy.xml")
        descriptor.write_text(
            f'<ivy-module version="2.0"><info organisation="tidemill" module="{bundle}"/>'
            f'<configurations><conf name="default"/></configurations>'
            f"<dependencies>{dependencies}</dependencies></ivy-module>"
        )
        subprocess.run(
            [
                *(str(java), f"-Divy.default.ivy.user.dir={folder}/home", "-jar", str(ivy_jar())),
                *("-ivy", str(descriptor), "-cache", f"{folder}/cache", "-types", "jar", "bundle"),
                *("-confs", "default", "-retrieve", f"{folder}/lib/[organisation]/[artifact]/[revision].jar"),
            ],
            check=True,
        )
        checksums = {
            f"{jar.parts[-3]}:{jar.parts[-2]}:{jar.stem}": hashlib.sha256(jar.read_bytes()).hexdigest()
            for jar in Path(folder, "lib").glob("*/*/*.jar")
        }
        names = [*roots, *sorted(checksums.keys() - set(roots))]
        return [f"{bundle} {name} {checksums[name]}" for name in names]


def main() -> None:
    java = next(iter(java_candidates(os.environ)))
    lines = [line for bundle, roots in BUNDLES.items() for line in resolved(bundle, roots, java)]
    for bundle, roots in EXACT_BUNDLES.items():
        lines += resolved(bundle, roots, java, 'transitive="false" conf="default->master"')
    LOCK_FILE.write_text(HEADER + "\n".join(lines) + "\n")
    print(f"{LOCK_FILE}: {len(lines)} jars")


if __name__ == "__main__":
    main()
