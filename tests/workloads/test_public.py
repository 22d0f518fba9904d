"""Downloads are pinned: another file than the pinned one is refused and not kept."""

from __future__ import annotations

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from workloads import public
from workloads.errors import BadInput
from workloads.readers import read_recording

from .samples import SAMPLES

pytest.importorskip("pooch", reason="needs the extra 'data'")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "served"
    folder.mkdir()
    data = SAMPLES["azure-2023"][0]
    (folder / "trace.csv").write_bytes(data)
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{running.server_port}/trace.csv"
        for name, digest in (("fair", hashlib.sha256(data).hexdigest()), ("other", "0" * 64)):
            monkeypatch.setitem(public.DATASETS, name, public.Dataset("test", "none", url, digest))
        missing = public.Dataset("test", "none", url.replace("trace", "nothing"), "0" * 64)
        monkeypatch.setitem(public.DATASETS, "missing", missing)
        yield folder
        running.shutdown()


def test_a_download_is_whole_and_not_repeated(server: Path, tmp_path: Path) -> None:
    path = public.download("fair", tmp_path / "out")
    assert len(read_recording(path).trace) == 2
    (server / "trace.csv").unlink()
    assert public.download("fair", tmp_path / "out") == path


@pytest.mark.parametrize(("name", "word"), [("other", "hash"), ("missing", "404"), ("fiar", "did you mean 'fair'")])
def test_what_is_not_the_pinned_file_is_refused(server: Path, tmp_path: Path, name: str, word: str) -> None:
    with pytest.raises(BadInput, match=word):
        public.download(name, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


def test_every_data_set_is_pinned_to_a_commit() -> None:
    for data in public.DATASETS.values():
        assert len(data.sha256) == 64
        assert any(len(part) == 40 for part in data.url.split("/"))


def test_the_handed_files_are_the_pinned_ones(shared: Path) -> None:
    for name, file in (
        ("azure-conversation-2023", "azure/AzureLLMInferenceTrace_conv.csv"),
        ("mooncake-synthetic", "mooncake/synthetic_trace.jsonl"),
    ):
        data = (shared / "data/files" / file).read_bytes()
        assert hashlib.sha256(data).hexdigest() == public.DATASETS[name].sha256
