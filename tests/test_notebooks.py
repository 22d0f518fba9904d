"""The notebooks run, from the first cell to the last, in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"


@pytest.mark.filterwarnings("default")  # of the notebook's libraries, not ours
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    jupytext = pytest.importorskip("jupytext", reason="needs the extra 'notebooks'")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra 'notebooks'")
    notebook = jupytext.read(path)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    shown = [output.get("data", {}) for cell in cells for output in cell.outputs]
    assert sum("image/png" in data for data in shown) == 2
    assert sum("text/html" in data for data in shown) == 3
    assert not list(tmp_path.iterdir())
