"""Token estimators: measured against real tokenizers, checked against a baseline, fitted, corrected."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.estimator.evaluate import Estimates, Evaluation
    from workloads.errors import Fault
    from workloads.tokenizers import Tokenizer
    from workloads.tokens.corpora import Chunk

app = typer.Typer(no_args_is_help=True, help="Regression-test token estimators against real tokenizers.")

OPEN = "o200k,qwen,deepseek"

Corpus = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[CORPUS]...", help="Folders of .txt files, one a class; default: the project's own."),
]
EstimatorName = Annotated[str, typer.Option("--estimator", help="by-script, table:open... or module:function.")]
Tokenizers = Annotated[str, typer.Option("--tokenizers", metavar="LIST", help="Real tokenizers, by commas.")]
By = Annotated[str, typer.Option("--by", help="What a row is: class (file) or script.")]
ChunkSize = Annotated[int, typer.Option("--chunk", min=1, help="Code points of a chunk.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


@app.command("eval", short_help="Measure an estimator chunk by chunk.")
def evaluate(
    corpus: Corpus = None,
    estimator: EstimatorName = "table:open",
    tokenizers: Tokenizers = OPEN,
    by: By = "class",
    chunk: ChunkSize = 1000,
    plots: Annotated[Path | None, typer.Option("--plots", metavar="DIR", help="Draw heat map and boxes there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure an estimator chunk by chunk: error, share under-estimated, speed.

    A row is a class and a tokenizer; max is the largest count of all. Red breaks the promise not to under-estimate.
    """
    evaluation = _evaluation(corpus, estimator, tokenizers, by, chunk)
    if plots is not None:
        from sim.estimator.plots import boxes, heat_map

        plots.mkdir(parents=True, exist_ok=True)
        stem = evaluation.estimator.replace(":", "-")
        heat_map(evaluation, plots / f"{stem}-heat.png")
        boxes(evaluation, plots / f"{stem}-boxes.png")
    if as_json:
        print(json.dumps(evaluation.content(), indent=2, allow_nan=False))
    else:
        from sim.estimator.table import print_evaluation

        print_evaluation(evaluation)


@app.command(short_help="Compare an estimator with a committed baseline.")
def check(
    baseline: Annotated[Path, typer.Option("--baseline", metavar="FILE", help="A committed measurement.")],
    corpus: Corpus = None,
    estimator: Annotated[str | None, typer.Option("--estimator", help="Default: the baseline's.")] = None,
    tokenizers: Annotated[str | None, typer.Option("--tokenizers", metavar="LIST", help="For --update.")] = None,
    by: Annotated[str | None, typer.Option("--by", help="For --update: class or script.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Write the baseline instead of comparing.")] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="Change that is none, 0.002 = 0.2 %.")
    ] = 0.0005,
    as_json: AsJson = False,
) -> None:
    """Compare an estimator with a committed baseline: exit code 3, and the classes that got worse.

    Besides the corpus there are probes, one for each class of characters and each pair of neighbours: however rare, it
    may not change unsaid.
    """
    from sim.estimator import baseline as base
    from sim.estimator.evaluate import load_estimator
    from sim.estimator.probes import estimates_of_probes

    known = base.settings_of(baseline) if update else base.read_baseline(baseline)
    names = tokenizers or ",".join(known.get("tokenizers", OPEN.split(",")))
    rows, chunk = by or known.get("by", "class"), known.get("chunk", 1000)
    measured = estimator or known.get("estimator", "table:open")
    evaluation = _evaluation(corpus, measured, names, rows, chunk)
    now = base.baseline_content(evaluation, chunk, rows, estimates_of_probes(load_estimator(measured)))
    if update:
        base.write_baseline(baseline, now)
        _say(f"wrote {baseline}: {len(now['rows'])} rows, {len(now['probes'])} probes")
        return
    worse = base.regressions(known, now, tolerance)
    moved = base.drifts(known, now)
    gone = base.missing_rows(known, now)
    if as_json:
        found = [
            {
                **{"class": r.class_, "script": r.script, "tokenizer": r.tokenizer},
                **{"measure": r.measure, "was": r.was, "now": r.now},
            }
            for r in worse
        ]
        changed = [{"probe": d.probe, "was": d.was, "now": d.now} for d in moved]
        overall = evaluation.overall.content()
        print(json.dumps({"regressions": found, "changed": changed, "missing": gone, "overall": overall}, indent=2))
    else:
        for regression in worse:
            print(f"worse: {regression}")
        for drift in moved:
            print(f"changed: {drift}")
        for name in gone:
            print(f"missing: {name} is in the baseline and not in the corpus")
        if not (worse or moved or gone):
            print(f"{evaluation.estimator}: no worse than {baseline} in {len(now['rows'])} rows")
    if worse or moved or gone:
        raise typer.Exit(3)


@app.command(short_help="Fit the tables to corpora, and cross-validate.")
def fit(
    corpus: Corpus = None,
    tokenizers: Annotated[str, typer.Option("--tokenizers", metavar="LIST", help="Default: all.")] = "",
    profiles: Annotated[str, typer.Option("--profiles", metavar="LIST", help="Default: all these suffice for.")] = "",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the weights go.")] = Path(
        "weights.json"
    ),
    margins: Annotated[
        str, typer.Option("--margins", metavar="LIST", help="Validate with these, as 1.05/1.1,...: ASCII/beyond.")
    ] = "",
    chunk: ChunkSize = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the cross-validation as JSON.")] = False,
) -> None:
    """Fit the tables to corpora, and cross-validate them two-way by source and by halves.

    Every corpus is fitted; the first is cross-validated, with the others known in both directions.
    """
    from sim.estimator.fit import fit_tables, read_margins

    tried = [read_margins(pair) for pair in _listed(margins)]
    report = fit_tables(
        _corpora(corpus), _listed(tokenizers), _listed(profiles), output, chunk, margins=tried, say=_say
    )
    if as_json:
        print(json.dumps(report, indent=2, allow_nan=False))
    else:
        from sim.estimator.table import print_validation

        print_validation(report)


@app.command(short_help="Correct a table from your own usage records.")
def learn(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="CSV with columns class, chars, tokens; or .parquet.")],
    table: Annotated[str, typer.Option("--table", help="The table to correct.")] = "table:open",
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write factors there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Correct a table from a team's own usage records: one factor for each content class, with its interval."""
    from sim.estimator.learn import learn_factors

    report = learn_factors(log, table)
    if output is not None:
        output.write_text(json.dumps(report.content(), indent=2) + "\n", "utf-8")
        _say(f"wrote {output}")
    if as_json:
        print(json.dumps(report.content(), indent=2, allow_nan=False))
    else:
        from sim.estimator.table import print_factors

        print_factors(report)


@app.command(short_help="Price estimators in simulated agent sessions.")
def price(
    corpus: Corpus = None,
    estimator: Annotated[
        str, typer.Option("--estimator", metavar="LIST", help="Names or module:function; default: the usual ones.")
    ] = "",
    tokenizers: Annotated[str, typer.Option("--tokenizers", metavar="LIST", help="What servers count with.")] = OPEN,
    budget: Annotated[int, typer.Option("--budget", min=1, help="Prompt tokens that fit.")] = 122_880,
    sessions: Annotated[int, typer.Option("--sessions", min=2, help="Of each class.")] = 20,
    seed: Annotated[int, typer.Option("--seed", help="Of their sizes and texts.")] = 20261130,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write the results there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Price estimators in simulated agent sessions: requests refused, results cleared early, tokens computed again.

    The agents fit their context by the estimator, the server counts with the tokenizer and refuses what does not fit.
    """
    from contextlib import ExitStack

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from sim.estimator import prices as show
    from sim.estimator.price import price as price_all
    from sim.estimator.table import print_prices
    from sim.report.folder import Folder

    names = _listed(estimator)
    _, against, chunks = _loaded(corpus, names, tokenizers, 1000)
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ExitStack() as stack:
        folder = None if output is None else stack.enter_context(Folder(output))
        bar = stack.enter_context(Progress(*columns, console=console, transient=True, disable=not console.is_terminal))
        task = bar.add_task("", total=len(against) * len({chunk.label for chunk in chunks}))
        found = price_all(
            chunks, names, against, budget=budget, sessions=sessions, seed=seed, progress=lambda: bar.advance(task)
        )
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        if folder is not None:
            folder.text("README.md", show.page(found, command, budget))
            folder.text("prices.csv", show.csv(found))
            together = show.document(show.everything(found), command)
            folder.text("summary.json", json.dumps(together, indent=1, allow_nan=False) + "\n")
            show.picture(found, folder.file("prices.png"))
    if as_json:
        print(json.dumps(show.document(found, command), indent=2, allow_nan=False))
    else:
        print_prices(found)


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _corpora(corpus: Sequence[Path] | None) -> list[Path]:
    from workloads.tokens.corpora import own_corpus

    return list(corpus) if corpus else [own_corpus()]


def _evaluation(corpus: Sequence[Path] | None, estimator: str, tokenizers: str, by: str, size: int) -> Evaluation:
    from sim.estimator.evaluate import BY, evaluate
    from workloads.errors import Fault, did_you_mean

    faults = []
    if by not in BY:
        faults.append(Fault(f"must be {' or '.join(BY)}, is {by!r}{did_you_mean(by, BY)}", key="--by"))
    (measured,), against, chunks = _loaded(corpus, [estimator], tokenizers, size, faults)
    return evaluate(measured, chunks, against, by)


def _loaded(
    corpus: Sequence[Path] | None, estimators: Sequence[str], tokenizers: str, size: int, faults: Sequence[Fault] = ()
) -> tuple[list[Estimates], list[Tokenizer], list[Chunk]]:
    """Return what is named; all that is wrong with any of it is told at once, after the ``faults`` known already."""
    from sim.estimator.evaluate import load_estimator
    from workloads.errors import BadInput, Fault
    from workloads.tokenizers import load_all
    from workloads.tokens.corpora import read_corpus

    wrong = list(faults)
    if not _listed(tokenizers):
        wrong.append(Fault("names no tokenizer", key="--tokenizers"))
    measured = []
    for name in estimators:
        try:
            measured.append(load_estimator(name))
        except BadInput as error:
            wrong += error.faults
    try:
        against = load_all(_listed(tokenizers))
    except BadInput as error:
        wrong += error.faults
    try:
        chunks = read_corpus(_corpora(corpus), size)
    except BadInput as error:
        wrong += error.faults
    if wrong:
        raise BadInput(*wrong)
    return measured, against, chunks


def _say(line: str) -> None:
    if sys.stderr.isatty():
        print(line, file=sys.stderr)
