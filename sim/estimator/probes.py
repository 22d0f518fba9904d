"""Texts made to show one class or one pair of neighbours each, however rare it is in any corpus.

A corpus weighs what occurs in it. A table has weights for much that hardly does, and a changed one must show all the
same: so each has a text in which it dominates. There is no true count for such a text; what an estimator makes of it
is only compared with what it made before.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Final

from policies.tokens.classes import ASCII_CLASSES, CLASSES, class_of
from policies.tokens.counts import BEFORE, KINDS, LEAD_CODES
from sim.estimator.evaluate import Estimates, script_of
from workloads.tokens.corpora import Chunk

TIMES: Final = 240
"""How often a probe has what it shows: 1/200 token, the least a weight can change by, then moves it by a token."""
_BETWEEN: Final = "enk7 -"  # one of each that may stand before, so that no other pair comes near as often
_PLAIN: Final = 40 * "There was no one at the door when we came home. "
"""Text far cheaper than its bytes, for the estimators that never tell more tokens than these."""
_FIRST: Final = {"two": "я", "more": "क"}
_SECOND: Final = {"latin": "é", "two-byte": "ω", "three-byte": "漢", "four-byte": "😀"}
_ASCII: Final = [chr(byte) for byte in range(0x7F, 0, -1)]


def _standing_before(name: str) -> str:
    return _FIRST.get(name) or next(c for c in _ASCII if BEFORE[LEAD_CODES[ord(c)] >> 5] == name)


def _being(kind: str) -> str:
    return _SECOND.get(kind) or next(c for c in _ASCII if class_of(c) == kind)


def _member(name: str) -> str:
    points = itertools.chain(range(0x80, 0xD800), range(0xE000, 0x110000))
    return next(c for c in map(chr, points) if class_of(c) == name and c.isprintable())


def _text(shown: str) -> str:
    return _PLAIN + "".join(shown + _BETWEEN[n % len(_BETWEEN)] for n in range(TIMES))


def estimates_of_probes(estimator: Estimates) -> dict[str, int]:
    """Return the tokens that an estimator makes of each probe, by the probe's name."""
    return {name: int(estimator.estimate(text)) for name, text in probes()}


@cache
def probes() -> tuple[tuple[str, str], ...]:
    """Return (name, text) of every probe: of each class beyond ASCII and its script, then of each pair."""
    found = []
    for name in CLASSES[len(ASCII_CLASSES) :]:
        script = script_of(Chunk(name, member := _member(name)))
        found.append((f"class {name}, {'of no script' if script == 'ascii' else f'script {script}'}", _text(member)))
    for before, kind in itertools.product(BEFORE, KINDS):
        found.append((f"pair {before} {kind}", _text(_standing_before(before) + _being(kind))))
    return tuple(found)
