"""`tidemill assign`: what the assignors would do, or did.

Decides only which commands the group has; each is in a module of its own.
"""

from __future__ import annotations

import typer

from tidemill.cli.assign_explain import explain
from tidemill.cli.assign_replay import replay
from tidemill.cli.assign_simulate import simulate
from tidemill.cli.assign_sweep import sweep

app = typer.Typer(help="Task assignment: recompute, explain and simulate.", no_args_is_help=True)
app.callback()(lambda: None)  # with a callback it stays a group, however few commands it has
app.command()(replay)
app.command()(explain)
app.command()(simulate)
app.command()(sweep)
