"""``tidemill prepare``: what makes every later start on this machine faster; once, or in an image's build."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from tidemill.cli.progress import status_line


def prepare(
    broker: Annotated[bool, typer.Option("--broker", help="Also download the embedded broker's jars.")] = False,
) -> None:
    """Archive Spark's classes in the user's cache folder, after a training run: instances start with about half the work."""
    from tidemill.embedded.jars import cache_folder, fetch_bundle
    from tidemill.embedded.java import find_java
    from tidemill.spark.launch.jvm_cache import cache_for
    from tidemill.spark.launch.training import make_cache

    java = find_java(os.environ)
    cache = cache_for(java.path, java.major, cache_folder(os.environ))
    with ThreadPoolExecutor(max_workers=1) as meanwhile, status_line() as tell:
        jars = meanwhile.submit(fetch_bundle, "broker", environ=os.environ) if broker else None
        if not cache.is_made and cache.can_be_made:
            tell(f"making Java {java.major}'s {cache.kind} of Spark, half a minute to a minute")
            make_cache(cache, java.path)
        if jars is not None:
            tell("fetching the broker's jars")
            jars.result()
    if not cache.is_made:
        typer.echo(f"{java.path} comes without a class archive to add to: instances start without one; Java 25 needs none")
        return
    typer.echo(f"Java {java.major}'s {cache.kind} of Spark: {cache.path}")
