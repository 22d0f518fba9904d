import json
from pathlib import Path

import pytest

from policies.limits import V015, V024


@pytest.mark.parametrize(("table", "version"), [(V015, "0.15.10"), (V024, "0.24.4")])
def test_every_recorded_name(shared: Path, table, version) -> None:
    models = json.loads((shared / "conformance/model_limits.json").read_text())["models"]
    assert len(models) > 50
    for name, by_version in models.items():
        want = by_version[version]
        got = table.lookup(name)
        assert table.normalise(name) == want["normalized"], name
        assert got.known == want["known_output"], name
        assert (got.output or table.default_output) == want["output_limit"], name
        assert (got.window or table.default_window) == want["context_window"], name
