"""Character classes: what an estimator tells apart.

ASCII is classed character by character. Beyond it a class is made of cells: a page of 256 code points (the high byte of
UTF-16) has eight, cut where the scripts in use change (`EDGES`). So the class comes from two table look-ups on bytes,
and all characters of a class have the same length in UTF-8, which makes a text's length in bytes a sum over classes.
"""

from __future__ import annotations

from typing import Final

# name, characters: every ASCII character belongs to exactly one; what is not listed is "control". How common a letter
# is tells well-covered languages from the others, and words from hash sums, base64 and minified names.
_ASCII: Final = (
    ("a", "a"),
    ("e", "e"),
    ("io", "io"),
    ("tn", "tn"),
    ("rs", "rs"),
    ("hldc", "hldc"),
    ("u-y", "umfpgbwvy"),
    ("k", "k"),
    ("jqxz", "jqxz"),
    ("upper", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ("digit", "0123456789"),
    ("space", " "),
    ("newline", "\n\r\t"),
    ("stop", ".,"),
    ("hyphen", "-"),
    ("underscore", "_"),
    ("slash", "/"),
    ("quote", "\"'"),
    ("colon", ":;!?"),
    ("operator", "=+*#"),
    ("bracket", "()[]{}<>"),
    ("sign", "$%&@\\^`|~"),
)
ASCII_CLASSES: Final = (*(name for name, _ in _ASCII), "control")

EDGES: Final = (0x00, 0x30, 0x40, 0x50, 0x60, 0x80, 0xC0, 0xE0)
"""Where the cells of a page begin; 0x30, 0x50 and 0x60 part the Cyrillic letters, 0xE0 the accented Latin ones."""

# name, first and last code point of each of its ranges: whole cells, of one UTF-8 length.
_RANGES: Final[tuple[tuple[str, tuple[tuple[int, int], ...]], ...]] = (
    ("latin-sign", ((0x80, 0xBF),)),
    ("latin-capital", ((0xC0, 0xDF),)),
    ("latin-accented", ((0xE0, 0xFF),)),
    ("latin-extended", ((0x100, 0x17F),)),
    ("latin-rare", ((0x180, 0x2FF),)),
    ("mark", ((0x300, 0x37F),)),
    ("greek", ((0x380, 0x3BF),)),  # capitals and the small letters to omicron
    ("greek-late", ((0x3C0, 0x3FF),)),
    ("cyrillic-capital", ((0x400, 0x42F),)),
    ("cyrillic", ((0x430, 0x44F),)),  # the Russian alphabet but yo
    ("cyrillic-national", ((0x450, 0x45F),)),  # yo, and what Ukrainian, Serbian, Macedonian... add
    ("cyrillic-extended", ((0x460, 0x4FF), (0x500, 0x52F))),  # what languages outside the Slavic ones add
    ("armenian", ((0x530, 0x57F),)),
    ("armenian-late", ((0x580, 0x5BF),)),  # the last Armenian letters, and the Hebrew points
    ("hebrew", ((0x5C0, 0x5FF),)),
    ("arabic", ((0x600, 0x64F),)),
    ("arabic-mark", ((0x650, 0x65F),)),
    ("arabic-extended", ((0x660, 0x6FF),)),  # what Persian, Urdu, Kurdish... add
    ("semitic-rare", ((0x700, 0x7FF),)),
    ("devanagari", ((0x900, 0x97F),)),
    ("bengali", ((0x980, 0x9FF),)),
    ("gurmukhi", ((0xA00, 0xA7F),)),
    ("gujarati", ((0xA80, 0xAFF),)),
    ("oriya", ((0xB00, 0xB7F),)),
    ("tamil", ((0xB80, 0xBFF),)),
    ("telugu", ((0xC00, 0xC7F),)),
    ("kannada", ((0xC80, 0xCFF),)),
    ("malayalam", ((0xD00, 0xD7F),)),
    ("sinhala", ((0xD80, 0xDFF),)),
    ("thai", ((0xE00, 0xE7F),)),
    ("lao", ((0xE80, 0xEFF),)),
    ("tibetan", ((0xF00, 0xFFF),)),
    ("myanmar", ((0x1000, 0x107F),)),
    ("myanmar-extended", ((0x1080, 0x10BF),)),
    ("georgian", ((0x10C0, 0x10FF),)),
    ("jamo", ((0x1100, 0x11FF),)),
    ("ethiopic", ((0x1200, 0x137F),)),
    ("khmer", ((0x1780, 0x17FF),)),
    ("latin-additional", ((0x1E00, 0x1EFF),)),
    ("punctuation", ((0x2000, 0x203F),)),
    ("symbol", ((0x2040, 0x24FF),)),
    ("box", ((0x2500, 0x25FF),)),
    ("pictograph", ((0x2600, 0x27FF),)),
    ("cjk-punctuation", ((0x3000, 0x303F),)),
    ("hiragana", ((0x3040, 0x307F),)),
    ("kana", ((0x3080, 0x30BF),)),
    ("katakana", ((0x30C0, 0x30FF),)),
    ("cjk-rare", ((0x3100, 0x4DFF), (0xF900, 0xFAFF))),  # bopomofo, squared words, rare characters
    ("han", ((0x4E00, 0x9FFF),)),
    ("hangul", ((0xAC00, 0xD7FF),)),
    ("variation", ((0xFE00, 0xFE2F),)),
    ("full-width", ((0xFF00, 0xFFFF),)),
)
# What no row names: three-byte scripts too rare to tell apart, lone surrogates among them; and beyond the basic plane.
OTHER: Final = "other"
MATH: Final = "math-letter"
EMOJI: Final = "emoji"
HAN_FAR: Final = "han-far"
FAR: Final = "far"
ASTRAL: Final = (MATH, EMOJI, HAN_FAR, FAR)

CLASSES: Final[tuple[str, ...]] = (*ASCII_CLASSES, *(name for name, _ in _RANGES), OTHER, *ASTRAL)
INDEX: Final[dict[str, int]] = {name: number for number, name in enumerate(CLASSES)}


def _length(point: int) -> int:
    return 1 if point < 0x80 else 2 if point < 0x800 else 3 if point < 0x10000 else 4


BYTES: Final[tuple[int, ...]] = (
    *(1 for _ in ASCII_CLASSES),
    *(_length(ranges[0][0]) for _, ranges in _RANGES),
    3,
    *(4 for _ in ASTRAL),
)

_OF_ASCII: Final = [INDEX["control"]] * 128
for _name, _members in _ASCII:
    for _member in _members:
        _OF_ASCII[ord(_member)] = INDEX[_name]
_OF_CELL: Final = [INDEX[OTHER]] * (256 * len(EDGES))
for _name, _ranges in _RANGES:
    for _first, _last in _ranges:
        for _page in range(_first >> 8, (_last >> 8) + 1):
            for _cell, _edge in enumerate(EDGES):
                if _first <= _page << 8 | _edge <= _last:
                    _OF_CELL[len(EDGES) * _page + _cell] = INDEX[_name]

ASCII_TABLE: Final = bytes(_OF_ASCII)
"""Class of each of the 128 ASCII characters."""
CELL_TABLE: Final = bytes(_OF_CELL)
"""Class of each cell of the basic plane, eight a page; those of ASCII are not used."""
CELL_OF_LOW: Final = bytes(max(n for n, edge in enumerate(EDGES) if edge <= low) for low in range(256))
"""Cell in which a low byte lies."""


def astral_class(point: int) -> str:
    """Return the class of a code point beyond the basic plane: by the second byte of its UTF-8 form."""
    if 0x1D000 <= point <= 0x1DFFF:
        return MATH
    if 0x1F000 <= point <= 0x1FFFF:
        return EMOJI
    return HAN_FAR if 0x20000 <= point <= 0x3FFFF else FAR


def class_of(character: str) -> str:
    """Return the class of one character: the rule in its plainest form, against which the fast paths are tested."""
    point = ord(character)
    if point < 0x80:
        return CLASSES[ASCII_TABLE[point]]
    if point > 0xFFFF:
        return astral_class(point)
    return CLASSES[CELL_TABLE[len(EDGES) * (point >> 8) + CELL_OF_LOW[point & 0xFF]]]
