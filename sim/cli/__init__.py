"""The command line. Each module holds the verbs of one noun and imports what is heavy only inside them."""

from __future__ import annotations

import sys

import typer

from sim.cli import calibrate, compare, conformance, estimator, measured, study
from sim.cli.trace import trace_app
from workloads.errors import BadInput

app = typer.Typer(
    name="slotsim",
    help="Evaluate max_tokens and context policies of LLM clients on a simulated inference server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # rich would wrap errors into boxes, which breaks clicking on and searching for them
)
app.command("compare", short_help="Simulate the arms of a study and compare them.")(compare.compare)
app.command("run", short_help="Simulate one arm of a study.")(compare.run)
app.command("validate", short_help="Check a study: every fault with its line.")(study.validate)
app.command("schema", short_help="Print the JSON Schema of a study.")(study.schema)
app.command("init")(study.init)
app.command("list", short_help="List what studies may name.")(study.list_known)
app.add_typer(trace_app)
app.add_typer(estimator.app, name="estimator")
app.command("conformance", short_help="Replay a real client's recordings.")(conformance.conformance)
app.command("calibrate", short_help="Fit step-time constants to measurements.")(calibrate.calibrate)
app.command("measured", short_help="Replay a measured run, and say the error.")(measured.measured)


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and leave.", is_eager=True),
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"slotsim {installed('slotsim')}")
        raise typer.Exit


def main() -> None:
    """Run the command line and leave with its exit code.

    0 fine, 1 internal error, 2 bad input, 3 a threshold failed, 4 a threshold is undecided, 130 interrupted.
    """
    try:
        app()
    except BadInput as error:
        for fault in error.faults:
            print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
