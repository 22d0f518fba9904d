"""``slotsim trace``: recorded traffic."""

from __future__ import annotations

import typer

from sim.cli import trace_cache

trace_app = typer.Typer(name="trace", help="Recorded traffic: what is in it.", no_args_is_help=True)
trace_app.command("cache")(trace_cache.cache)
