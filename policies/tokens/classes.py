"""Character classes: what an estimator tells apart.

ASCII is classed character by character; the rest of Unicode in blocks of 64 code points, because that is what one lead
byte and one continuation byte of UTF-8 name. So a class needs no decoding, and all its characters have the same length
in UTF-8, which makes the length of a text in bytes a sum over its classes.
"""

from __future__ import annotations

from typing import Final

# name, characters: every ASCII character belongs to exactly one; what is not listed is "control".
_ASCII: Final = (
    ("lower", "etaoinsrhldu"),  # the twelve commonest letters of English and most of its neighbours
    ("rare", "bcfgjkmpqvwxyz"),  # hash sums, base64, minified names and far languages are rich in these
    ("upper", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ("digit", "0123456789"),
    ("space", " "),
    ("newline", "\n\r\t"),
    ("stop", ".,"),
    ("dash", "-_/"),
    ("quote", "\"':;!?"),
    ("sign", "#$%&()*+<=>@[\\]^`{|}~"),
)
ASCII_CLASSES: Final = (*(name for name, _ in _ASCII), "control")

# name, first and last code point of each of its ranges: whole blocks of 64, the same UTF-8 length throughout.
_RANGES: Final[tuple[tuple[str, tuple[tuple[int, int], ...]], ...]] = (
    ("latin-sign", ((0x80, 0xBF),)),
    ("latin-accented", ((0xC0, 0xFF),)),
    ("latin-extended", ((0x100, 0x17F),)),
    ("latin-rare", ((0x180, 0x2FF),)),
    ("mark", ((0x300, 0x37F),)),
    ("greek", ((0x380, 0x3FF),)),
    ("cyrillic", ((0x400, 0x47F),)),
    ("cyrillic-extended", ((0x480, 0x53F),)),
    ("armenian", ((0x540, 0x57F),)),
    ("hebrew", ((0x580, 0x5FF),)),
    ("arabic", ((0x600, 0x67F),)),
    ("arabic-extended", ((0x680, 0x6FF),)),
    ("semitic-other", ((0x700, 0x7FF),)),
    ("semitic-rare", ((0x800, 0x8FF),)),
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
    ("jamo", ((0x1100, 0x11FF), (0xD7C0, 0xD7FF))),
    ("ethiopic", ((0x1200, 0x137F),)),
    ("cherokee", ((0x1380, 0x13FF),)),
    ("canadian", ((0x1400, 0x167F),)),
    ("khmer", ((0x1780, 0x17FF),)),
    ("mongolian", ((0x1800, 0x18BF),)),
    ("latin-additional", ((0x1E00, 0x1EFF),)),
    ("greek-extended", ((0x1F00, 0x1FFF),)),
    ("punctuation", ((0x2000, 0x203F),)),
    ("symbol", ((0x2040, 0x24FF), (0x2900, 0x2BFF))),
    ("box", ((0x2500, 0x25FF),)),
    ("pictograph", ((0x2600, 0x27FF),)),
    ("braille", ((0x2800, 0x28FF),)),
    ("cjk-punctuation", ((0x3000, 0x303F),)),
    ("hiragana", ((0x3040, 0x307F),)),
    ("kana", ((0x3080, 0x30FF),)),
    ("cjk-sign", ((0x2E80, 0x2FFF), (0x3100, 0x33FF))),
    ("han-rare", ((0x3400, 0x4DFF), (0xF900, 0xFAFF))),
    ("han", ((0x4E00, 0x9FFF),)),
    ("yi", ((0xA000, 0xA4BF),)),
    ("hangul", ((0xAC00, 0xD7BF),)),
    ("surrogate", ((0xD800, 0xDFFF),)),
    ("private", ((0xE000, 0xF8FF),)),
    ("arabic-form", ((0xFB00, 0xFDFF), (0xFE40, 0xFEFF))),
    ("variation", ((0xFE00, 0xFE3F),)),
    ("full-width", ((0xFF00, 0xFFFF),)),
)
# What no row names: three-byte scripts too rare to tell apart, and everything beyond the basic plane.
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
_OF_BLOCK: Final = [INDEX[OTHER]] * 1024
for _name, _ranges in _RANGES:
    for _low, _high in _ranges:
        for _block in range(_low >> 6, (_high >> 6) + 1):
            _OF_BLOCK[_block] = INDEX[_name]

ASCII_TABLE: Final = bytes(_OF_ASCII)
"""Class of each of the 128 ASCII characters."""
BLOCK_TABLE: Final = bytes(_OF_BLOCK)
"""Class of each block of 64 code points of the basic plane; the first two, ASCII, are not used."""


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
    return CLASSES[BLOCK_TABLE[point >> 6]] if point < 0x10000 else astral_class(point)
