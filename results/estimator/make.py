"""Make everything in this folder again: ``python results/estimator/make.py [CORPUS]``, default ``../shared/corpus``.

The corpus is the handed one and not part of the project; ``baseline.json`` needs only the project's own and is made by
``slotsim estimator check --baseline results/estimator/baseline.json --update``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from policies.tokens import estimator_names
from sim.estimator.evaluate import MAX, Evaluation, evaluate, load_estimator
from sim.estimator.fit import fit_tables
from sim.estimator.plots import boxes, heat_map
from workloads.tokenizers import load_all
from workloads.tokens.corpora import own_corpus, read_corpus
from workloads.tokens.fitting import Margins
from workloads.tokens.profiles import OPEN, PROFILES

HERE = Path(__file__).parent
MARGINS = [Margins(1.0, 1.0), Margins(1.04, 1.05), Margins(1.09, 1.09), Margins(1.1, 1.12), Margins(1.15, 1.18)]


def percent(value: float, sign: str = "+", digits: int = 1) -> str:
    """Return a share as per cent."""
    return f"{100 * value:{sign}.{digits}f} %"


def spread(bounds: list[float], sign: str = "+") -> str:
    """Return an interval as per cent."""
    return " to ".join(percent(bound, sign) for bound in bounds)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def overall(found: Evaluation) -> list[str]:
    """Return the overall line of an evaluation."""
    row = found.overall
    under, mean = row.under_interval, found.mean_interval
    return [
        f"`{found.estimator}`",
        f"{percent(row.under_share, '')} ({percent(under[0], '')} to {percent(under[1], '')})",
        f"{percent(row.mean_error)} ({percent(mean[0])} to {percent(mean[1])})",
        percent(row.worst_error),
    ]


def validation_rows(lines: list[dict[str, Any]]) -> list[list[str]]:
    """Return the lines of a cross-validation, marking the margins that ship."""
    return [
        [
            f"`table:{line['profile']}`",
            line["margins"] + ("" if line["margins"] != str(PROFILES[line["profile"]].margins) else " (ships)"),
            line["folds"],
            f"{percent(line['under_share'], '', 2)} ({spread(line['under_interval'], '')})",
            f"{percent(line['mean_error'])} ({spread(line['mean_interval'])})",
            percent(line["worst_error"]),
            f"{percent(line['worst_class_under'], '', 0)} {line['worst_class']}"
            if line["worst_class_under"]
            else "none",
        ]
        for line in lines
    ]


def main(corpus: Path) -> None:
    """Measure, validate, draw, and write the page."""
    tokenizers = load_all(OPEN)
    chunks = read_corpus([corpus])
    ordinary = [chunk for chunk in chunks if not chunk.stress]
    stress = [chunk for chunk in chunks if chunk.stress]
    found = {name: evaluate(load_estimator(name), ordinary, tokenizers) for name in estimator_names()}
    hard = {name: evaluate(load_estimator(name), stress, tokenizers) for name in estimator_names()}
    for name in ("by-script", "table:open"):
        heat_map(found[name], HERE / f"{name.replace(':', '-')}-heat.png")
        boxes(found[name], HERE / f"{name.replace(':', '-')}-boxes.png")
    weights = HERE.parent / "runs" / "weights.json"
    weights.parent.mkdir(exist_ok=True)
    both = fit_tables([corpus, own_corpus()], (), (), weights, 1000, margins=MARGINS, say=print)["validation"]
    every = [*both, *fit_tables([corpus, own_corpus()], (), (), weights, 1000, say=print)["validation"]]
    unique = {(line["profile"], line["margins"], line["folds"]): line for line in every}
    lines = sorted(
        unique.values(),
        key=lambda line: (list(PROFILES).index(line["profile"]), len(line["margins"]) > 3, line["margins"]),
    )
    alone = fit_tables([corpus], (), ["open"], weights, 1000, margins=MARGINS, say=print)["validation"]
    rows = {row.class_: row for row in found["by-script"].rows if row.tokenizer == MAX}
    ours = {row.class_: row for row in found["table:open"].rows if row.tokenizer == MAX}
    text = f"""# Token estimators, measured

`python results/estimator/make.py` makes this page and its pictures; `slotsim estimator eval`, `fit` and `check` are the
commands behind it. Text: the handed corpus, {len(ordinary)} chunks of 1,000 characters in {
        len(rows)
    } ordinary classes and
{
        len(stress)
    } in stress classes (`h_*`). Truth: the largest count of o200k, Qwen 3 and DeepSeek V4, chunk by chunk. Error =
(estimate - count) / count. Intervals are at 95 % and resample whole classes.

What such errors cost agents is in [consequence](consequence/README.md).

## Ordinary classes

The tables were fitted on this text (and on the project's own): how they do on other text is in the next section.

{table(["estimator", "under-estimated", "mean error", "worst"], [overall(e) for e in found.values()])}

A table for one tokenizer is measured here against three, which is what a wrong profile costs.

![by-script](by-script-boxes.png)
![table:open](table-open-boxes.png)

## Text that was not fitted

Two-way cross-validation: fitted on one half of each class with the project's own corpus, estimated on the other, both
ways. `source`: the halves are different origins (`SOURCES.md`); `half`: first and second half of each file. Margins:
factor on pairs that end in ASCII / on characters beyond it; characters of a script whose fitted text has one origin get
4 % on top. A profile is measured against its own tokenizers. Where no chunk is under-estimated the upper bound is that
for classes which stand or fall as a whole.

{
        table(
            ["table", "margins", "folds", "under-estimated", "mean", "worst", "class that fails most"],
            validation_rows(lines),
        )
    }

Without the project's own corpus, `table:open` only:

{
        table(
            ["table", "margins", "folds", "under-estimated", "mean", "worst", "class that fails most"],
            validation_rows(alone),
        )
    }

## Stress classes

Minority languages, capitals, escapes, noise. All but `h_random_bmp` were fitted too; no promise is made for others.

{table(["estimator", "under-estimated", "mean error", "worst"], [overall(e) for e in hard.values()])}

## By class

{
        table(
            [
                "class",
                "characters per token",
                "by-script, mean",
                "by-script, worst",
                "table:open, mean",
                "table:open, worst",
            ],
            [
                [
                    name,
                    f"{row.chars_per_token:.2f}",
                    percent(row.mean_error),
                    percent(row.worst_error),
                    percent(ours[name].mean_error),
                    percent(ours[name].worst_error),
                ]
                for name, row in rows.items()
            ],
        )
    }
"""
    (HERE / "README.md").write_text(text, "utf-8")
    summary = {
        "command": "python results/estimator/make.py",
        "ordinary": {name: e.overall.content() | {"mean_interval": e.mean_interval} for name, e in found.items()},
        "stress": {name: e.overall.content() | {"mean_interval": e.mean_interval} for name, e in hard.items()},
        "validation": lines,
        "validation_without_own_corpus": alone,
    }
    (HERE / "estimators.json").write_text(json.dumps(summary, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/corpus"))
