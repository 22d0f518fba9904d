"""Kinds of text that agents read and write: what estimators see of them and what tokenizers really count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from policies.messages import Blend, Sample
from policies.tokens import count_classes
from workloads.agents.plan import Part


@dataclass(frozen=True, slots=True)
class Writing:
    """A kind of text.

    Attributes
    ----------
    blend
        Its character statistics.
    characters_per_token
        Characters in a true token, on the tokenizer named in `source`.
    source
        Where that comes from.
    """

    blend: Blend
    characters_per_token: float
    source: str

    def part(self, characters: int) -> Part:
        """Return so many characters of it."""
        return Part(Sample(self.blend, characters), round(characters / self.characters_per_token))

    def part_of(self, tokens: int) -> Part:
        """Return as many characters of it as make so many true tokens."""
        return Part(Sample(self.blend, round(tokens * self.characters_per_token)), tokens)


_MEASURED = "measured with Qwen's tokenizer (151,643 entries) on 12,000 to 16,000 characters of several sources"


def _writing(name: str, sample: str, characters_per_token: float, source: str = _MEASURED) -> tuple[str, Writing]:
    return name, Writing(Blend(name, count_classes(sample)), characters_per_token, source)


WRITINGS: Mapping[str, Writing] = MappingProxyType(
    dict(
        (
            _writing(
                "english",
                "The harbour office opened at seven, and by half past the clerk had already counted eleven boats. Two "
                "of them were late; nobody could say why, although the wind had dropped before midnight.",
                4.955,
            ),
            _writing(
                "russian",
                "Контора в порту открылась в семь, и к половине восьмого писарь насчитал уже одиннадцать лодок. Две из "
                "них опоздали; никто не мог сказать почему, хотя ветер стих ещё до полуночи.",
                2.952,
            ),
            # The chapter that the design document measured: 73,600 characters beyond ASCII and 26,492 within it, about
            # 44,600 tokens on its tokenizer.
            _writing("russian-chapter", "а" * 73_600 + " " * 26_492, 100_092 / 44_600, "design document 001"),
            _writing(
                "chinese",
                "港口办事处七点开门，到七点半，职员已经数到了十一条船。其中两条来晚了；虽然风在半夜之前就停了，却没有人说得出原因。",
                1.383,
            ),
            _writing(
                "japanese",
                "港の事務所は七時に開き、七時半には書記がもう十一隻の船を数えていた。そのうち二隻は遅れていた。風は夜半前にやんだのに、"
                "なぜなのか誰にも分からなかった。",
                1.430,
            ),
            _writing(
                "code",
                "def late(boats, wind):\n    # the clerk counts every boat once\n"
                "    return [boat.name for boat in boats if boat.arrival > wind.end and not boat.reported]\n\n",
                4.827,
            ),
            _writing(
                "json",
                '{\n  "path": "harbour/boats.json",\n  "boats": [\n    {"name": "Alma", "arrival": 7.25, "late": true, '
                '"crew": 3},\n    {"name": "Berta", "arrival": 6.5, "late": false, "crew": 4}\n  ]\n}\n',
                3.575,
            ),
            _writing(
                "logs",
                "2026-03-14T07:25:11.482Z INFO harbour.gate[2291]: boat=Alma berth=11 dt=0.0042s status=late code=0x1f "
                "retry=2/5\n",
                1.999,
            ),
        )
    )
)
"""Every kind by name. Characters a token: on the tokenizer named in each; another one counts differently."""
