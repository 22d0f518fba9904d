"""Put the figures of the CSV files beside this one into the tables of README.md: ``python results/context/make.py``.

The files are what ``slotsim compare STUDY --csv`` prints; README.md says which studies. A table stands behind a comment
that names its file.
"""

import csv
import re
from pathlib import Path

HERE = Path(__file__).parent
LEVELS = {"finished": "finished", "hit_rate": "hit rate"}
RATIOS = {
    "ttft_s": "mean TTFT",
    "cost.anthropic-5min": "Anthropic 5 min",
    "cost.openai": "OpenAI",
    "cost.deepseek": "DeepSeek",
}


def cell(row: dict[str, str], prefix: str, digits: int) -> str:
    """Return a value with its interval."""
    value, low, high = (float(row[name]) for name in (prefix, f"{prefix}_low", f"{prefix}_high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(name: str) -> str:
    """Return a file as a table of Markdown; arms that all finish are not said to."""
    arms: dict[str, dict[str, dict[str, str]]] = {}
    with (HERE / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            level = {"mean": row["mean"], "mean_low": row["low"], "mean_high": row["high"]}
            arms.setdefault(row["arm"], {})[row["metric"]] = row | level
    levels = {key: title for key, title in LEVELS.items() if key != "finished" or name.startswith("arms")}
    lines = ["| arm | " + " | ".join([*levels.values(), *RATIOS.values()]) + " |"]
    lines.append("|---" * (1 + len(levels) + len(RATIOS)) + "|")
    for arm, rows in arms.items():
        cells = [cell(rows[key], "mean", 3) for key in levels] + [cell(rows[key], "ratio", 2) for key in RATIOS]
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    readme = HERE / "README.md"
    text = re.sub(
        r"(<!-- ([\w-]+)\.csv -->\n)(\|.*\n)*", lambda found: f"{found[1]}{table(found[2])}\n", readme.read_text()
    )
    readme.write_text(text)
