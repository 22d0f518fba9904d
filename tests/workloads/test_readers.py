"""Every reader says what its sample says, whole, compressed, from Windows; and names what is wrong with a bad one."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.errors import BadInput
from workloads.readers import FORMATS, read_recording, read_trace, write_trace
from workloads.readers.stream import MAX_RATIO

from .samples import SAMPLES, lines

AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def write(tmp_path: Path):
    def written(data: bytes, name: str = "log") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return written


def faults(path: Path, **options) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read_recording(path, **options)
    texts = [str(fault).replace(f"{path}", "log") for fault in caught.value.faults]
    assert all("\n" not in text for text in texts)
    return texts


def test_there_is_a_sample_of_every_format() -> None:
    assert set(SAMPLES) == set(FORMATS) | {"servegen"}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gz", "bz2", "xz"])
@pytest.mark.parametrize("format", SAMPLES)
def test_a_sample_is_recognised_and_read(format: str, pack, write) -> None:
    data, arrivals, prompts, outputs = SAMPLES[format]
    recording = read_recording(write(pack(data)))
    assert recording.format == format
    assert recording.trace.arrival_s.tolist() == pytest.approx(arrivals, abs=1e-6)
    assert recording.trace.prompt_tokens.tolist() == prompts
    assert recording.trace.output_tokens.tolist() == outputs


@pytest.mark.parametrize("format", [name for name in SAMPLES if name != "servegen"])
@pytest.mark.parametrize(
    "change", [lambda d: b"\xef\xbb\xbf" + d, lambda d: d.replace(b"\n", b"\r\n"), lambda d: d + b"\n\n"]
)
def test_marks_of_other_systems_change_nothing(format: str, change, write) -> None:
    data, _, prompts, _ = SAMPLES[format]
    assert read_recording(write(change(data))).trace.prompt_tokens.tolist() == prompts


def test_two_gzip_members_are_one_file(write) -> None:
    data = SAMPLES["azure-2023"][0]
    head, tail = data[:60], data[60:]
    assert len(read_recording(write(gzip.compress(head) + gzip.compress(tail))).trace) == 2


def test_usage_records_tell_truncation_cache_and_reasoning(write) -> None:
    trace = read_recording(write(SAMPLES["usage"][0])).trace
    assert trace.truncated.tolist() == [True, True, False]
    assert trace.cached_tokens.tolist() == [64, 40, 0]
    assert trace.reasoning_tokens.tolist() == [8, 0, 0]


def test_transcripts_keep_counts_and_no_text(write, tmp_path) -> None:
    recording = read_recording(write(SAMPLES["claude-code"][0]))
    trace = recording.trace
    assert trace.kind.strings() == ["user", "tool-round"]
    assert trace.truncated.tolist() == [False, True]
    assert trace.think_s.tolist()[1:] == [3.0]
    assert trace.service_s.tolist() == [4.0, 2.0]
    assert any("1 tool results" in note and "500" in note for note in recording.notes)
    write_trace(trace, tmp_path / "t.parquet")
    assert b"secret" not in (tmp_path / "t.parquet").read_bytes()


def test_sessions_of_weka(write) -> None:
    trace = read_recording(write(SAMPLES["weka"][0])).trace
    assert trace.kind.strings() == ["user", "tool-round", "subagent"]
    assert trace.session.tolist() == [0, 0, 1]
    assert trace.session_s.tolist() == [0.0, 9.0, 2.0]
    assert trace.segments.totals().tolist() == [128, 192, 64]
    assert trace.prefix_reuse() == pytest.approx(1 / 6)
    with pytest.raises(BadInput, match="clock of its own"):
        read_trace(write(SAMPLES["weka"][0]))


def test_sessions_of_weka_with_plain_block_ids(write) -> None:
    session = json.loads(SAMPLES["weka"][0])
    runs = read_recording(write(lines(session))).trace.segments
    for request in (*session["requests"], *session["requests"][1]["requests"]):
        if "runs" in request:
            request["hash_ids"] = [first + i for first, count in request.pop("runs") for i in range(count)]
    plain = read_recording(write(lines({**session, "hash_id_scope": "local"}))).trace.segments
    assert (plain.ids.tolist(), plain.tokens.tolist()) == (runs.ids.tolist(), runs.tokens.tolist())
    assert "hash_id_scope: must be local" in "\n".join(faults(write(lines({**session, "hash_id_scope": "global"}))))


def test_failed_calls_are_counted(write) -> None:
    assert read_recording(write(SAMPLES["burstgpt"][0])).notes[-1].startswith("1 failed calls")
    assert read_recording(write(SAMPLES["aiperf"][0])).notes == ("1 failed requests left out",)


# bad rows: (text, faults)
BAD = {
    "negative": (AZURE + b"2023-11-16 18:15:46,-3,4\n", ["log:2: ContextTokens: must be a whole number", "-3"]),
    "nan": (AZURE + b"2023-11-16 18:15:46,3,NaN\n", ["log:2: GeneratedTokens: must be a whole number", "NaN"]),
    "empty cell": (AZURE + b"2023-11-16 18:15:46,,4\n", ["log:2: ContextTokens"]),
    "fraction": (AZURE + b"2023-11-16 18:15:46,1.5,4\n", ["log:2: ContextTokens"]),
    "huge": (AZURE + b"2023-11-16 18:15:46,99999999999999999999,4\n", ["log:2: ContextTokens"]),
    "no time": (AZURE + b"yesterday,1,4\n", ["log:2: TIMESTAMP: must be a time like"]),
    "no such day": (AZURE + b"2023-02-30 18:15:46,1,4\n", ["log:2: TIMESTAMP"]),
    "far future": (
        AZURE + b"9999-01-01 00:00:00,1,4\n1969-12-31 23:00:00,1,4\n",
        ["log:2: TIMESTAMP", "log:3: TIMESTAMP"],
    ),
    "short row": (AZURE + b"2023-11-16 18:15:46,1\n", ["log:2: has 2 cells, the header has 3"]),
    "out of order": (
        AZURE + b"2023-11-16 18:15:46,1,4\n2023-11-16 18:15:45,1,4\n",
        ["log:3: arrives before the row above"],
    ),
    "several": (
        AZURE + b"2023-11-16 18:15:46,x,4\n\n2023-11-16 18:15:47,1,-4\n",
        ["log:2: ContextTokens", "log:4: GeneratedTokens"],
    ),
    "missing column": (b"TIMESTAMP,ContextToken,GeneratedTokens\n", ["did you mean 'ContextToken'"]),
    "column twice": (AZURE[:-1] + b",ContextTokens\n1,2,3,4\n", ["ContextTokens: this column stands twice"]),
    "no rows": (AZURE, ["holds no calls"]),
    "no JSON": (
        b'{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n{oops\n',
        ["log:2: is no JSON"],
    ),
    "NaN in JSON": (
        b'{"timestamp": NaN, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n',
        ["NaN is no JSON number"],
    ),
    "bool": (
        b'{"timestamp": 1, "input_length": true, "output_length": 1, "hash_ids": [1]}\n',
        ["log:1: input_length: must be a whole number"],
    ),
    "missing key": (
        b'{"timestamp": 1, "input_length": 5, "outputlength": 1, "hash_ids": [1]}\n',
        ["log:1: output_length: is missing - did you mean 'outputlength'?"],
    ),
    "too few blocks": (
        b'{"timestamp": 1, "input_length": 5000, "output_length": 1, "hash_ids": [1]}\n',
        ["log:1: hash_ids: 5,000 tokens need 10 blocks of 512, there are 1"],
    ),
    "deep": (b'{"timestamp": 1, "input_length": 5, "hash_ids": ' + b"[" * 200_000 + b"\n", ["nested too deep"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_named_by_its_line(case: str, write) -> None:
    data, parts = BAD[case]
    format = "mooncake" if data.startswith(b"{") else "azure-2023"
    found = "\n".join(faults(write(data), format=format))
    for part in parts:
        assert part in found


def test_bad_rows_may_be_skipped_and_are_counted(write) -> None:
    data = (
        AZURE + b"2023-11-16 18:15:46,1,4\n2023-11-16 18:15:47,x,4\n2023-11-16 18:15:40,1,4\n2023-11-16 18:15:48,2,5\n"
    )
    recording = read_recording(write(data), skip_bad=True)
    assert recording.trace.prompt_tokens.tolist() == [1, 2]
    assert "skipped 2 bad rows" in recording.notes[0]
    assert "out of order" in recording.notes[0]


def test_a_thousand_faults_are_twenty_lines_and_a_count(write) -> None:
    found = faults(write(AZURE + b"x,1,1\n" * 1000))
    assert len(found) == 21
    assert found[-1].endswith("... and 980 more faults")


def test_zones_are_honoured_and_no_zone_is_utc(write) -> None:
    data = AZURE + b"2023-11-16 18:00:00+02:00,1,4\n2023-11-16 17:00:01+01:00,1,4\n"
    assert read_recording(write(data)).trace.arrival_s.tolist() == [0.0, 1.0]
    mixed = AZURE + b"2023-11-16 18:00:00Z,1,4\n2023-11-16 18:00:01,1,4\n"
    assert read_recording(write(mixed)).trace.arrival_s.tolist() == [0.0, 1.0]


def test_equal_times_are_fine_and_extra_columns_are_named(write) -> None:
    data = b"TIMESTAMP,ContextTokens,GeneratedTokens,Extra\n" + b"2023-11-16 18:15:46,1,4,zzz\n" * 2
    recording = read_recording(write(data))
    assert recording.trace.arrival_s.tolist() == [0.0, 0.0]
    assert recording.notes == ("ignored columns: Extra",)


def test_duplicate_ids_are_refused(write) -> None:
    record = json.loads(SAMPLES["usage"][0].splitlines()[0])
    assert any(
        "log:2: id: 'chatcmpl-1' stands already in line 1" in text for text in faults(write(lines(record, record)))
    )


def test_units_of_time_are_told_by_size(write) -> None:
    record = json.loads(SAMPLES["usage"][0].splitlines()[0])
    moments = [1_760_000_000, 1_760_000_001_000, 1_760_000_002_000_000, 1_760_000_003_000_000_000]
    data = lines(*({**record, "id": str(moment), "created": moment} for moment in moments))
    assert read_recording(write(data)).trace.arrival_s.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_cut_or_damaged_archive_is_refused(pack, write) -> None:
    rows = b"".join(b"2023-11-16 18:15:46.%07d,%d,4\n" % (i, i * 7919 % 10_007) for i in range(20_000))
    packed = pack(AZURE + rows)
    (cut,) = faults(write(packed[: len(packed) // 2]))
    assert "end in the middle" in cut
    if pack is gzip.compress:  # the others are cut within their first block: no line can be read
        assert 1_000 < int(cut.split(":")[1]) <= 20_001
    broken = bytearray(packed)
    broken[len(packed) // 2] ^= 0xFF
    assert faults(write(bytes(broken)))


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"\xff\xfet\x00", "UTF-16"),
        (b"PK\x03\x04....", "zip"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
        (b"PAR1garbage", "Parquet"),
        (b"hello\nworld\n", "unknown format"),
        (b'{"a": 1}\n', "unknown format"),
        (b"TIMESTAMP\x00,ContextTokens\n", "binary"),
    ],
)
def test_what_is_no_trace_is_said_so(data: bytes, word: str, write) -> None:
    assert word in "\n".join(faults(write(data)))


def test_missing_files_folders_and_formats_are_said_so(tmp_path, write) -> None:
    assert "No such file" in "\n".join(faults(tmp_path / "nope"))
    assert "folder" in "\n".join(faults(tmp_path))
    assert "did you mean 'azure-2023'" in "\n".join(faults(write(AZURE), format="azure-203"))


def test_a_bomb_is_refused_early(write) -> None:
    bomb = gzip.compress(AZURE + b"\n" * (64 * 2**20))
    assert len(bomb) * MAX_RATIO < 64 * 2**20
    assert "200 : 1" in "\n".join(faults(write(bomb)))


LIMITED = """
    import resource, sys
    from workloads.errors import BadInput
    from workloads.readers import read_recording
    import workloads.readers.stream as stream
    here = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (here + 400 * 2**20,) * 2)
    try:
        read_recording(sys.argv[1], sys.argv[2])
    except BadInput as error:
        print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to know its own address space")
def test_a_line_of_five_gigabytes_is_refused_in_constant_memory(tmp_path) -> None:
    """A pipe feeds the reader a line that never ends, so that no such file has to be written."""
    pipe = tmp_path / "pipe"
    subprocess.run(["mkfifo", str(pipe)], check=True)
    feeder = "import sys\nout = open(sys.argv[1], 'wb')\nwhile True: out.write(b'x' * 2**20)"
    with subprocess.Popen([sys.executable, "-c", feeder, str(pipe)], stderr=subprocess.DEVNULL) as feeding:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(LIMITED), str(pipe), "azure-2023"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        feeding.kill()
    assert "line is longer than 64 MB" in done.stdout, done.stderr
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 * 2**20


@given(st.data())
def test_no_damage_makes_a_reader_crash(tmp_path_factory, data: st.DataObject) -> None:
    format = data.draw(st.sampled_from(sorted(SAMPLES)))
    text = bytearray(SAMPLES[format][0])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(text) - 1, 0)))
        patch = data.draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from(
                    [
                        b"null",
                        b"-1",
                        b"NaN",
                        b"1e999",
                        b"{}",
                        b"[]",
                        b'"',
                        b",",
                        b"\n",
                        b"\r",
                        b"9" * 30,
                        b"true",
                        b"9999",
                        b"0000",
                        b"1e308",
                        b"-0",
                        b"\xff",
                    ]
                ),
            )
        )
        text[at : at + data.draw(st.integers(0, 12))] = patch
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(bytes(text))
    for chosen in ("auto", format):
        for skip in (False, True):
            with contextlib.suppress(BadInput):
                assert len(read_recording(path, chosen, skip_bad=skip).trace)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "2023-11-16 18:15:46.68",
                    "2023-11-16T18:15:47Z",
                    "x",
                    "",
                    "2023-11-16 18:15:46.680590000",
                    "2250-01-01 00:00:00",
                ]
            ),
            st.one_of(
                st.integers(-2, 10**9).map(str), st.sampled_from(["", "nan", "1.0", "1e3", "0x1F", " 7 ", "+5", "1_0"])
            ),
            st.sampled_from(["1", "2", "3.5"]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_fast_path_and_the_careful_one_agree(rows: list) -> None:
    """What the fast path accepts, the careful one reads alike; a bad row elsewhere must not change a good one."""
    from workloads.readers.azure import COLUMNS
    from workloads.readers.faults import FaultLog
    from workloads.readers.stream import Chunk
    from workloads.readers.table import _careful, _fast

    data = "".join(",".join(row) + "\n" for row in rows).encode()
    header = [column.name for column in COLUMNS]
    fast = _fast(Chunk(2, data), header, COLUMNS)
    careful = _careful(Chunk(2, data), header, COLUMNS, FaultLog("log"))
    if fast is not None:
        assert fast.lines.tolist() == careful.lines.tolist()
        for name in header:
            assert np.array_equal(fast.columns[name], careful.columns[name])


ODD = ["-0", "-0.0", "5.0", "1e2", "1E400", "NaN", "Infinity", "null", "true", '"5"', "01", "[5]", "{}", "100000001"]
PLAIN_BLOCKS = [("0", ""), ("5", "3"), ("512", "-9"), ("1024", f"1, {2**63 - 1}")]
ODD_BLOCKS = [("5", value) for value in ["", "1, 2", str(2**63), "1.0", "null", "true", "[1]", "1,"]]
ENDS = [
    "}\n",
    "} \n",
    "}\r\n",
    "}\n\n",
    "}",
    "},",
    "\n}\n",
    ', "x": 1}\n',
    ', "input_length": 5}\n',
    ', "x": {}}\n',
    "\n",
]


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.one_of(st.integers(0, 10**12).map(str), st.floats(0, 1e12).map(repr)),
                st.sampled_from(PLAIN_BLOCKS),
                st.integers(0, 9).map(str),
                st.just("}\n"),
            ),
            st.tuples(
                st.sampled_from(["7", "7", *ODD]),
                st.sampled_from([*PLAIN_BLOCKS, *ODD_BLOCKS, *((value, "1") for value in ODD)]),
                st.sampled_from(["1", "1", *ODD]),
                st.sampled_from(["}\n", "}\n", *ENDS]),
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_the_fast_path_for_blocks_and_the_careful_one_agree(rows: list) -> None:
    """What the fast path accepts, the careful one finds without a fault and reads alike, to the last bit."""
    from workloads.readers.faults import FaultLog
    from workloads.readers.mooncake import BLOCK, _careful, _fast
    from workloads.readers.stream import Chunk

    text = '{{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [{}]{}'
    chunk = Chunk(2, "".join(text.format(at, n, out, ids, end) for at, (n, ids), out, end in rows).encode())
    fast, log = _fast(chunk, BLOCK), FaultLog("log")
    if fast is not None:
        careful = _careful(chunk, BLOCK, log)
        assert not log.count
        assert [column.tobytes() for column in fast] == [column.tobytes() for column in careful]


def test_the_fast_path_takes_plain_blocks() -> None:
    from workloads.readers.mooncake import BLOCK, _fast
    from workloads.readers.stream import Chunk

    rows = _fast(Chunk(1, SAMPLES["mooncake"][0]), BLOCK)
    assert rows is not None
    assert rows.ids.tolist() == [0, 1, 0, 2]


def test_reading_is_streamed(tmp_path) -> None:
    """A generated log of 40 MB is read in far less memory than its size: rows are 24 bytes, lines are 100."""
    path = tmp_path / "big.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(AZURE.replace(b"\n", b",Padding\n"))
        for i in range(400_000):
            out.write(
                b"2023-11-16 18:%02d:%02d.%07d,%d,4,%060d\n" % (i // 24_000, i // 400 % 60, i % 400, i % 1000 + 1, i)
            )
    program = LIMITED.replace("400 * 2**20", "150 * 2**20").replace(
        "read_recording(sys.argv[1], sys.argv[2])", "print(len(read_recording(sys.argv[1], sys.argv[2]).trace))"
    )
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path), "azure-2023"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "400000", done.stderr
