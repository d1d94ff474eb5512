"""``tidemill prepare``: what makes every later start on this machine faster; once, or in an image's build."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.progress import status_line

if TYPE_CHECKING:
    from tidemill.embedded.java import Java


def prepare(
    broker: Annotated[bool, typer.Option("--broker", help="Also download the embedded broker's jars, and prepare it.")] = False,
) -> None:
    """Archive Spark's classes in the user's cache folder, after a training run: instances start with about half the work."""
    from tidemill.embedded.jars import cache_folder
    from tidemill.embedded.java import find_java
    from tidemill.runtime.instance.machine_jvm import spark_cache
    from tidemill.spark.launch.training import make_cache

    java = find_java(os.environ)
    cache = spark_cache(java, cache_folder(os.environ))
    with ThreadPoolExecutor(max_workers=1) as meanwhile, status_line() as tell:
        prepared = meanwhile.submit(_prepare_broker, java) if broker else None
        if not cache.is_made and cache.can_be_made:
            tell(f"making Java {java.major}'s {cache.kind} of Spark, half a minute to a minute")
            make_cache(cache, java.path)
        if prepared is not None:
            tell("fetching the broker's jars, and preparing it")
            prepared.result()
    if not cache.is_made:
        typer.echo(f"{java.path} comes without a class archive to add to: instances start without one; Java 25 needs none")
        return
    typer.echo(f"Java {java.major}'s {cache.kind} of Spark: {cache.path}")


def _prepare_broker(java: Java) -> None:
    from tidemill.embedded.broker_cache import broker_cache, make_broker_cache
    from tidemill.embedded.jars import cache_folder, fetch_bundle

    bundle = fetch_bundle("broker", environ=os.environ)
    cache = broker_cache(java, bundle, cache_folder(os.environ))
    if not cache.is_made and cache.can_be_made:
        make_broker_cache(cache, java, bundle)
