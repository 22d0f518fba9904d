"""The part of the corpus that no person writes: code, records, logs, tables, numbers, hashes, escapes.

Everything is drawn from a fixed seed and a few hundred words, so that the committed files can be made again:
``python -m workloads.tokens.generate``.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from workloads.tokens.corpora import own_corpus

SIZE: Final = 3_600
"""Characters of a generated file at least."""
WINDOW: Final = 40
"""Characters that no file has twice."""

_NOUNS: Final = """
account batch buffer cache channel client cluster column cursor daemon device driver event factory field
filter frame graph handle header index journal kernel key label layer ledger lock manager mapping matrix
message metric module monitor mutex node offset packet parser patch pipeline pixel plugin pointer policy pool
prefix process profile quota queue range record region registry replica report request resource response route
sample scheduler schema segment sensor server session shard signal socket source stack storage stream symbol
table target task template thread timer token topic trace transaction tree trigger tuple user value vector
version volume window worker
""".split()  # noqa: SIM905 - a list of this length is read as words, not as quotes
_VERBS: Final = """
accept allocate append apply assign attach balance build cancel check clear close collect commit compare
compile compress compute connect convert copy count create decode delete detach dispatch drain emit encode
evict expand export extract fetch flush format gather generate import insert inspect invoke join list load
lock log merge move normalize notify open pack parse poll prepare probe publish pull purge push read rebuild
recover reduce refresh register release reload remove render replace reset resolve restore resume retry rotate
scan seek select send serialize sort split start stop submit sync trim unlock update validate verify wait wrap
write yield
""".split()  # noqa: SIM905 - a list of this length is read as words, not as quotes
_TEXTS: Final = (
    "Привет, как дела? Встретимся завтра в семь у моста",
    "Ο καφές είναι έτοιμος και το παράθυρο ανοιχτό",
    "明日の会議は午後三時からに変更になりました",
    "내일 아침에는 비가 온다고 하니 우산을 챙기세요",
    "غدا نلتقي أمام المكتبة بعد صلاة العصر",
    "Größere Änderungen müssen künftig früher angekündigt werden",
)
_CHAT: Final = (
    ("are you coming", "I just missed", "happy birthday to", "in my head all day:", "we won", "who forgot", "look at"),
    ("tonight", "the bus", "the best cook I know", "this song", "the match", "the keys again", "the snow", "my desk"),
)
_EMOJI: Final = "😀😂🥲😍🤔😴🥳😭🙏👍👏💪🎉🎂🔥✨🌧️☕🍕🐱🐶🚲🚌🏆⚽🎶📷🗝️❄️🏠❤️💔👀🤷‍♀️👩‍🍳🧑‍🎓👨‍👩‍👧🇫🇷🇯🇵🇧🇷"


def _phrase(draw: random.Random, words: int = 3) -> str:
    return " ".join(draw.choice((_NOUNS, _VERBS)[n % 2]) for n in range(words))


def _python(draw: random.Random) -> str:
    verb, noun, other = draw.choice(_VERBS), draw.choice(_NOUNS), draw.choice(_NOUNS)
    deep = "    " * draw.randrange(1, 4)
    return draw.choice(
        (
            f"\n\ndef {verb}_{noun}({other}, *, {draw.choice(_NOUNS)}={draw.randrange(2, 999)}):\n",
            f'    """{verb.title()} the {noun} of a {other} before the {_phrase(draw)}."""\n',
            f"{deep}for {noun} in self.{draw.choice(_VERBS)}_{other}s:\n",
            f"{deep}if {noun}.{other} is None or not {noun}.{verb}():\n{deep}    return {draw.choice(_NOUNS)}\n",
            f"{deep}{noun} = {other}.{verb}({draw.choice(_NOUNS)}, '{_phrase(draw, 2)}')\n",
            f"{deep}raise {noun.title()}Error(f'cannot {verb} the {other}: {{{draw.choice(_NOUNS)}!r}}')\n",
            f"{deep}with {noun}.{verb}() as {other}:\n{deep}    {other}.{draw.choice(_VERBS)}()\n",
            f"{deep}# the {other} must {verb} first, or else a {noun} would {_phrase(draw)}\n",
        )
    )


def _c(draw: random.Random) -> str:
    verb, noun, other = draw.choice(_VERBS), draw.choice(_NOUNS), draw.choice(_NOUNS)
    return draw.choice(
        (
            f"}}\n\nstatic int {noun}_{verb}(struct {noun} *p, size_t {other})\n{{\n",
            f"\tif (!p->{noun} || {other} > {verb.upper()}_MAX)\n\t\treturn -E{noun.upper()};\n",
            f"\tp->{noun} = {verb}_{other}(p, sizeof(*{draw.choice(_NOUNS)}));\n",
            f"\tfor (i = 0; i < {noun}_{other}; i++)\n\t\t{verb}(&p->{draw.choice(_NOUNS)}[i]);\n",
            f"\t/* the {other} still owns this {noun}, so {verb} it only after {_phrase(draw)} */\n",
            f'\tpr_err("{noun}: cannot {verb} %s (%d)\\n", {other}->name, {draw.choice(_NOUNS)});\n',
            f"#define {noun.upper()}_{verb.upper()}\t0x{draw.getrandbits(16):04x}\n",
            f"\tmemcpy({noun}->{other}, {draw.choice(_NOUNS)}, {verb}_len);\n",
        )
    )


def _minified(draw: random.Random) -> str:
    a, b, c = draw.sample(string.ascii_letters, 3)
    verb, noun = draw.choice(_VERBS), draw.choice(_NOUNS)
    return draw.choice(
        (
            f"function {a}{b}({c},{a}){{return {c}&&{c}.{verb}?{c}.{verb}({a}):void 0}}",
            f"var {a}={b}.{noun}||{{}},{c}=!{a}.{draw.choice(_NOUNS)}&&{draw.randrange(99)};",
            f"{a}.{noun}=function({b}){{for(var {c}=0;{c}<{b}.length;{c}++)this.{verb}({b}[{c}])}};",
            f'if("{noun}"===typeof {a}.{verb})throw new {b}("{draw.choice(_NOUNS)}:"+{c});',
            f"{c}=({a},{b})=>{{let {c}={a}.get({b});return null==={c}?{a}.set({b},[]):{c}.{verb}()}},",
        )
    )


def _entry(draw: random.Random) -> dict[str, object]:
    return {
        draw.choice(_NOUNS): f"{draw.choice(_VERBS)}-{draw.choice(_NOUNS)}",
        f"{draw.choice(_NOUNS)}_{draw.choice(_NOUNS)}": draw.randrange(10**4),
        f"max_{draw.choice(_NOUNS)}_{draw.choice(_NOUNS)}": round(draw.uniform(0, 100), 2),
        f"{draw.choice(_VERBS)}_{draw.choice(_NOUNS)}": draw.random() < 0.5,
        f"{draw.choice(_NOUNS)}_description": _phrase(draw, 5),
    }


def _log(draw: random.Random) -> str:
    clock = (
        f"2026-{draw.randrange(1, 13):02}-{draw.randrange(1, 29):02}T{draw.randrange(24):02}:{draw.randrange(60):02}"
    )
    level = draw.choice(("INFO", "WARN", "ERROR", "DEBUG"))
    return (
        f"{clock}:{draw.uniform(0, 60):06.3f}Z {level} [{draw.choice(_NOUNS)}-{draw.randrange(64)}] "
        f"{draw.choice(_NOUNS)}.{draw.choice(_VERBS)}: {draw.choice(_VERBS)} {draw.choice(_NOUNS)} "
        f"id={draw.getrandbits(48):012x} took {draw.randrange(1, 90_000)}ms from 10.{draw.randrange(256)}."
        f"{draw.randrange(256)}.{draw.randrange(256)}:{draw.randrange(1024, 65536)}\n"
    )


def _row(draw: random.Random) -> str:
    figure = f"{draw.uniform(0, 99):.1f} {draw.choice(('ms', 'MB', '%', 'calls'))}"
    name = f"{draw.choice(_NOUNS)} {draw.choice(_NOUNS)}"
    return f"| {name} | {_phrase(draw, 4)} | {figure} | `{draw.choice(_VERBS)}` |\n"


def _listing(draw: random.Random) -> str:
    mode = "".join(draw.choice((letter, "-")) for letter in "rwxrwxrwx")
    name = f"{draw.choice(_NOUNS)}{draw.choice('._-')}{draw.choice(_NOUNS)}.{draw.choice(('py', 'so', 'txt', 'gz'))}"
    return (
        f"-{mode} {draw.randrange(1, 9)} root root {draw.randrange(10**8):>10} Nov {draw.randrange(1, 31):>2} {name}\n"
    )


def _link(draw: random.Random) -> str:
    host = f"{draw.choice(_NOUNS)}-{draw.choice(_NOUNS)}.example.{draw.choice(('org', 'com', 'net'))}"
    return (
        f"https://{host}/{draw.choice(_NOUNS)}/{draw.choice(_VERBS)}-{draw.choice(_NOUNS)}?{draw.choice(_NOUNS)}="
        f"{draw.randrange(10**4)}&{draw.choice(_NOUNS)}={draw.getrandbits(32):x}\n"
    )


def _markup(draw: random.Random) -> str:
    noun, other = draw.choice(_NOUNS), draw.choice(_NOUNS)
    return (
        f'<div class="{noun}-{other}" id="{draw.choice(_VERBS)}{draw.randrange(99)}">\n'
        f'  <a href="/{other}/{draw.randrange(999)}">{draw.choice(_VERBS).title()} the {noun}</a>\n'
        f"  <p>{_phrase(draw, 8).capitalize()}, <em>{draw.choice(_NOUNS)}</em>.</p>\n"
        f"  <!-- {_phrase(draw)} -->\n</div>\n"
    )


def _formula(draw: random.Random) -> str:
    a, b, c = draw.sample("abfghkmnpqrstuvwxyz", 3)
    greek = draw.choice(("alpha", "beta", "lambda", "sigma", "omega", "varphi"))
    noun = draw.choice(_NOUNS)
    return draw.choice(
        (
            f"Let ${a} : {b.upper()} \\to {c.upper()}$ be a {noun} of the {draw.choice(_NOUNS)} we {_phrase(draw)}.\n",
            f"\\[ \\sum_{{{a}=0}}^{{{b}}} {c}_{{{a}}} \\le \\frac{{\\{greek}}}{{{draw.randrange(2, 99)}}} \\]\n",
            f"\\begin{{lemma}}\\label{{l:{noun}}} Each {noun} that can {draw.choice(_VERBS)} is {draw.choice(_NOUNS)}-"
            f"free for all ${a} > {b}_0$.\n\\end{{lemma}}\n",
            f"We {draw.choice(_VERBS)} the {noun} $\\{greek}({a},{b})$ and {draw.choice(_VERBS)} it along ${c}$; "
            f"the rest follows from \\cref{{eq:{draw.choice(_NOUNS)}}}.\n",
        )
    )


def _numbers(draw: random.Random) -> str:
    cells = (draw.randrange(10**6), draw.uniform(-500, 500), draw.gauss(0, 1), draw.randrange(10**10))
    return f"{cells[0]},{cells[1]:.3f},{cells[2]:.6f},{cells[3]}\n"


def _chat(draw: random.Random) -> str:
    signs = "".join(draw.choice(_PICTURES) for _ in range(draw.randrange(1, 5)))
    said, what = (draw.choice(part) for part in _CHAT)
    return f"{said} {draw.choice(_PICTURES)} {what} {signs} {draw.choice(_NOUNS)}\\n"


def _pictures(signs: str) -> list[str]:
    """Return the emoji of a string whole: joiners, variation selectors and flags stay with what they belong to."""
    whole: list[str] = []
    for sign in signs:
        flag = "\U0001f1e6" <= sign <= "\U0001f1ff"
        half = flag and whole and "\U0001f1e6" <= whole[-1] <= "\U0001f1ff"
        if whole and (sign in "\u200d\ufe0f" or whole[-1].endswith("\u200d") or half):
            whole[-1] += sign
        else:
            whole.append(sign)
    return whole


def _foreign(draw: random.Random) -> str:
    """Return a few words that no ASCII can hold, in an order of their own: for the escapes."""
    words = draw.choice(_TEXTS).split()
    return " ".join("".join(draw.sample(word, len(word))) for word in draw.sample(words, min(3, len(words))))


_PICTURES: Final = _pictures(_EMOJI)

_LINES: Final[dict[str, Callable[[random.Random], str]]] = {
    "code_py": _python,
    "code_c": _c,
    "code_minjs": _minified,
    "json_pretty": lambda draw: json.dumps(_entry(draw), indent=2) + ",\n",
    "json_min": lambda draw: json.dumps(_entry(draw), separators=(",", ":")) + ",",
    "logs": _log,
    "md_table": _row,
    "aligned_ls": _listing,
    "urls": _link,
    "html": _markup,
    "math_tex": _formula,
    "numbers_csv": _numbers,
    "hex": lambda draw: f"{draw.getrandbits(256):064x}  {draw.choice(_NOUNS)}.bin\n",
    "base64": lambda draw: base64.b64encode(draw.randbytes(57)).decode() + "\n",
    "emoji_chat": _chat,
    "h_json_escaped": lambda draw: json.dumps({draw.choice(_NOUNS): _foreign(draw), "id": draw.getrandbits(32)}) + "\n",
    "h_percent_enc": lambda draw: f"q={quote(_foreign(draw))}&id={draw.getrandbits(32)}\n",
}


def generated(label: str) -> str:
    """Return the generated text of a class: always the same, and no 40 characters of it twice."""
    draw = random.Random(f"slotsim corpus {label}")  # noqa: S311 - reproducible text, no secret
    text, seen = "", set[str]()
    for _ in range(SIZE):
        if len(text) >= SIZE:
            return text
        longer = text + _LINES[label](draw)
        windows = [longer[at : at + WINDOW] for at in range(max(0, len(text) - WINDOW + 1), len(longer) - WINDOW + 1)]
        if len({*windows}) == len(windows) and seen.isdisjoint(windows):
            seen.update(windows)
            text = longer
    raise RuntimeError(f"{label}: its lines repeat themselves too often")


LABELS: Final = tuple(_LINES)


def write(folder: Path) -> None:
    """Write the generated part of the corpus."""
    for label in LABELS:
        (folder / f"{label}.txt").write_bytes(generated(label).encode())


if __name__ == "__main__":
    write(own_corpus())
