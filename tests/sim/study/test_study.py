"""Study files: what they mean, and what is said about wrong ones."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.context import Document001
from policies.output import Adaptive, Fixed, Progressive
from policies.profiles import PROFILES
from sim.hardware import GPUS, MODELS
from sim.quantities import DURATIONS, SIZES, parse
from sim.replication import server_of
from sim.study import load_study, templates
from sim.study.reference import markdown
from sim.study.schema import json_schema
from workloads.errors import BadInput, Fault
from workloads.lengths import LENGTHS, Lognormal

STUDY = """schema = 1
name = "pair"
[run]
horizon = "10min"
[server]
engine = "vllm-0.33"
model = "llama-3.1-8b"
gpu = "h100"
[policy.output]
name = "adaptive"
first_cap = 4_000
[[workload.streams]]
name = "chat"
arrivals = { kind = "poisson", rate = 2.0 }
prompt = { kind = "constant", tokens = 100 }
output = { kind = "lognormal", median = 600, p99 = 5_000 }
[[workload.streams]]
name = "agent"
arrivals = { kind = "gamma", rate = 1, cv = 2 }
prompt = { kind = "uniform", low = "1k", high = "2Ki" }
output = { kind = "geometric", mean = 300 }
scripts = { latin = 0.5, han = 0.5 }
"""
ARMS = """
[arms.plain]
[arms.fixed]
policy.output = { name = "fixed", max_tokens = 32_000 }
[arms.capped]
policy.output.first_cap = 2_000
workload.streams.chat.arrivals.rate = 4
"""
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00.0000000,100,10\n2023-11-16 18:00:01.0000000,200,20\n"
)


def faults(*arguments: object, **options: object) -> list[Fault]:
    with pytest.raises(BadInput) as raised:
        load_study(*arguments, **options)  # type: ignore[arg-type]
    return list(raised.value.faults)


def lines(found: list[Fault]) -> dict[tuple[int | None, str | None], str]:
    return {(fault.line, fault.key): fault.message for fault in found}


# what a study means


def test_a_study_without_arms_has_the_base(write) -> None:
    study = load_study(write(STUDY))
    assert list(study.arms) == ["base"]
    assert study.base == study.arms["base"]
    assert study.arms["base"].policy_output.build() == Adaptive(first_cap=4_000)
    run = study.run
    assert (run.kind, run.horizon_s, run.warmup_s, run.replications, run.same_within) == (
        "steady",
        600,
        "auto",
        10,
        0.01,
    )


def test_arms_merge_with_the_base_or_replace_its_tables(write) -> None:
    study = load_study(write(STUDY + ARMS))
    assert list(study.arms) == ["plain", "fixed", "capped"]
    assert study.arms["plain"] == study.base
    assert study.arms["fixed"].policy_output.build() == Fixed(max_tokens=32_000)
    capped = study.arms["capped"]
    assert capped.policy_output.build() == Adaptive(first_cap=2_000)
    chat, agent = capped.workload.streams
    assert (chat.arrivals.build().rate, agent.arrivals.build().rate) == (4, 1)
    assert chat.output.build() == Lognormal(median=600, p99=5_000)
    assert (agent.prompt.build().low, agent.prompt.build().high) == (1_000, 2_048)


def test_another_engine_replaces_the_server_of_an_arm_but_not_with_set(write) -> None:
    text = STUDY + '\n[arms.a]\n[arms.b]\nserver = { engine = "trtllm-no-evict" }\n'
    assert "arms.b.server.model" in {fault.key for fault in faults(write(text))}
    study = load_study(write(STUDY), ["server.engine=trtllm-no-evict"])
    assert study.base.server.settle().admission == "full"
    assert study.base.server.model == "llama-3.1-8b"


def test_an_arm_may_bring_what_the_base_lacks(write) -> None:
    text = STUDY.replace('[policy.output]\nname = "adaptive"\nfirst_cap = 4_000\n', "")
    study = load_study(write(text + '[arms.a]\npolicy.output = { name = "fixed" }\n'))
    assert study.arms["a"].policy_output.build() == Fixed()
    with pytest.raises(BadInput, match="policy: missing"):
        _ = study.base
    assert [fault.key for fault in faults(write(text))] == ["policy"]


def test_a_context_policy_is_built_from_its_table(write) -> None:
    table = "{ name = 'document-001', budget = '400k', clear_to = 'budget', estimator = 'chars-per-four' }"
    study = load_study(write(STUDY), [f"policy.context={table}"])
    policy = study.base.policy_context.build()
    assert policy == Document001(budget=400_000, clear_to="budget", estimator="chars-per-four")
    assert load_study(write(STUDY)).base.policy_context is None


def test_overrides_change_the_base_and_reach_arms(write) -> None:
    path = write(STUDY + ARMS)
    study = load_study(
        path,
        [
            "server.kv_tokens=200k",
            "policy.output.name = adaptive",
            "workload.streams.1.arrivals.cv=3",
            "arms.fixed.policy.output.max_tokens=16_000",
            'thresholds."call.e2e_s.p99"=<= 2min',
            "slo.request.ttft_s=500ms",
            "run.horizon=1h",
        ],
        seed=7,
        replications=3,
    )
    assert {arm.server.settle().kv_tokens for arm in study.arms.values()} == {200_000}
    assert study.arms["fixed"].policy_output.build() == Fixed(max_tokens=16_000)
    assert study.arms["plain"].policy_output.build() == Adaptive(first_cap=4_000)
    assert study.arms["plain"].workload.streams[1].arrivals.build().cv == 3
    assert (study.seed, study.run.replications, study.run.horizon_s) == (7, 3, 3600)
    assert study.slo == {"request.ttft_s": 0.5}
    assert str(study.thresholds["call.e2e_s.p99"]) == "<= 120"


def test_overrides_do_not_depend_on_their_order(write) -> None:
    path, pair = write(STUDY), ["policy.output.max_tokens=16_000", "policy.output.name=fixed"]
    assert load_study(path, pair).base == load_study(path, pair[::-1]).base
    assert load_study(path, ["run.horizon=1", "run.horizon=2"]).run.horizon_s == 2


def test_a_path_replaces_the_streams_and_is_relative_to_its_writer(write, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for place in (tmp_path, folder):
        (place / "trace.csv").write_text(AZURE)
    head = STUDY.partition("[[")[0].replace('horizon = "10min"', "")
    in_file = load_study(write(head + '[workload]\npath = "trace.csv"\n'))
    monkeypatch.chdir(folder)
    on_line = load_study(write(STUDY), ["workload.path=trace.csv"])
    assert in_file.base.workload.path == str(tmp_path / "trace.csv")
    assert on_line.base.workload.path == "trace.csv"
    assert on_line.base.workload.streams == ()
    for study, horizon in ((in_file, None), (on_line, 600)):
        run = study.run
        assert (run.kind, run.horizon_s, run.warmup_s, run.replications) == ("terminating", horizon, 0, 1)
        (block,) = study.sources()["base"].blocks(0, 0)
        assert block.prompt_tokens.tolist() == [100, 200]


def test_arms_with_the_same_workload_share_a_source(write) -> None:
    sources = load_study(write(STUDY + ARMS)).sources()
    assert sources["plain"] is sources["fixed"]
    assert sources["plain"] is not sources["capped"]


def test_only_one_arm(write) -> None:
    study = load_study(write(STUDY + ARMS))
    assert list(study.only("fixed").arms) == ["fixed"]
    assert study.only().arms == {"base": study.base}
    with pytest.raises(BadInput, match=r"unknown arm 'fixd', there are plain, fixed, capped - did you mean 'fixed'\?"):
        study.only("fixd")


def test_the_server_is_settled_from_preset_model_and_gpu(write) -> None:
    server = load_study(write(STUDY)).base.server.settle()
    assert (server.model, server.gpu) == (MODELS["llama-3.1-8b"], GPUS["h100"])
    assert server.window == MODELS["llama-3.1-8b"].window
    assert (server.admission, server.block_tokens, server.chunked_prefill) == ("prompt", 16, True)
    assert server.kv_tokens > 400_000
    line = ["server.step_time={kind='line', base_s='20ms'}", "server.kv_tokens=1000", "server.window=1000"]
    bare = STUDY.replace('model = "llama-3.1-8b"\ngpu = "h100"\n', "")
    bare = bare.replace('name = "adaptive"\nfirst_cap = 4_000', 'name = "fixed"\nmax_tokens = 500\nmargin_tokens = 0')
    server = load_study(write(bare), line).base.server.settle()
    assert (server.model, server.gpu, server.kv_tokens, server.step_time.segment(1, 1)[0]) == (None, None, 1000, 0.02)


@pytest.mark.parametrize("text", [STUDY, STUDY + ARMS])
def test_the_resolved_study_is_the_same_study(write, text: str) -> None:
    study = load_study(write(text), ["slo.call.e2e_s=60", "thresholds.running.mean=>= 1.5"])
    again = load_study(write(study.resolved(), "again.toml"))
    assert again.resolved() == study.resolved()
    for name, arm in study.arms.items():
        assert again.arms[name].server.settle() == arm.server.settle()
        assert again.arms[name].policy == arm.policy
        assert again.arms[name].workload == arm.workload
    assert (again.run, again.slo, again.thresholds, again.seed) == (study.run, study.slo, study.thresholds, study.seed)


# what is said about wrong ones


def test_all_faults_at_once_each_with_its_line(write) -> None:
    text = """schema = 1
nmae = "x"
[run]
horizon = -5
kind = "stedy"
[server]
engine = "vllm"
model = "qwen3-33b"
tensor_parallel = true
[policy.output]
name = "adaptive"
frist_cap = 3
recoveries = -1
[[workload.streams]]
name = "chat"
arrivals = { kind = "poisson", rate = -1 }
prompt = { kind = "lognormal", median = 9, p99 = "many", runaway = 2 }
scripts = { latn = 1 }
[arms.a]
polcy.output.name = "fixed"
[slo]
"call.e2e" = 3
[thresholds]
"call.e2e_s.p99" = "~ 60"
"call.e2e_s.p98" = "< 60"
"""
    said = lines(faults(write(text)))
    wanted = {
        (2, "nmae"): "did you mean 'name'?",
        (4, "run.horizon"): "must be greater than 0, got -5",
        (5, "run.kind"): "did you mean 'steady'?",
        (7, "server.engine"): "did you mean 'vllm-0.33'?",
        (8, "server.model"): "did you mean 'qwen3-32b'?",
        (9, "server.tensor_parallel"): "got True",
        (12, "policy.output.frist_cap"): "did you mean 'first_cap'?",
        (13, "policy.output.recoveries"): "-1 is negative",
        (14, "workload.streams.0.output"): "missing",
        (16, "workload.streams.0.arrivals.rate"): "a finite number above 0",
        (17, "workload.streams.0.prompt.p99"): "must be a number",
        (17, "workload.streams.0.prompt.runaway"): "a share from 0 to 1",
        (18, "workload.streams.0.scripts.latn"): "did you mean 'latin'?",
        (20, "arms.a.polcy"): "did you mean 'policy'?",
        (22, 'slo."call.e2e"'): "did you mean 'call.e2e_s'?",
        (24, 'thresholds."call.e2e_s.p99"'): 'such as "<= 60"',
        (25, 'thresholds."call.e2e_s.p98"'): "did you mean 'call.e2e_s.p99'?",
    }
    assert set(said) == set(wanted)
    assert all(part in said[place] for place, part in wanted.items())


@pytest.mark.parametrize(
    ("override", "key", "part"),
    [
        ("run.horizon=0", "--set run.horizon", "greater than 0"),
        ("run.horizon=nan", "--set run.horizon", "finite"),
        ("run.horizon=inf", "--set run.horizon", "finite"),
        ("run.horizon=3 parsecs", "--set run.horizon", "with a unit"),
        ("run.replications=0", "--set run.replications", "greater than 0"),
        ("run.replications=2.5", "--set run.replications", "whole number"),
        ("run.replications={min=5, max=3}", "--set run.replications.max", "at least min (5)"),
        ("run.warmup=-1", "--set run.warmup", "greater than or equal to 0"),
        ("run.warmup=soon", "--set run.warmup", "with a unit"),
        ("server.kv_tokens=1000", "--set server.kv_tokens", "does not hold one request of the window of 131,072"),
        ("server.max_num_batched_tokens=8", "--set server.max_num_batched_tokens", "at least max_num_seqs"),
        ("server.gpu={memory=3}", "--set server.gpu.flops", "missing"),
        ("server.gpu=3", "--set server.gpu", "must be a name or a table"),
        ("server.model=llama-2-70b", "--set server.model", "leaves no room"),
        ("server.step_time=rofline", "--set server.step_time", "did you mean 'roofline'?"),
        ("server.step_time={kind='line', base_s=-1}", "--set server.step_time", "-1"),
        ("server.victim=lst", "--set server.victim", "did you mean 'last'?"),
        ("server={engine='tgi-2', gpu='h100', model='llama-3.1-8b', victim='last'}", "server.victim", "never preempts"),
        ("server.prefix_cache=yes", "--set server.prefix_cache", "must be a valid boolean"),
        ("policy.context={name='document-01'}", "--set policy.context.name", "did you mean 'document-001'?"),
        ("policy.context={name='document-001', budget=0}", "--set policy.context.budget", "at least 1"),
        ("workload.streams=[{name='a', arrivals={rate=1}}]", "--set workload.streams.arrivals.kind", "missing"),
        ("policy.output=[]", "--set policy.output", "must be a table"),
        ("policy.output.first_cap=70_000", "study.toml", "escalation has to raise the limit"),
        ("policy.output.name=[1]", "--set policy.output.name", "unknown output policy"),
        ("server=3", "--set server", "must be a table"),
        ("workload.path=nowhere.csv", "--set workload.path", "no such file: nowhere.csv"),
        ("workload.streams=[]", "workload.path", "set it with --set workload.path=FILE"),
        ("workload.streams.chet.name=a", "--set workload.streams.chet.name", "did you mean 'chat'?"),
        ("workload.streams.7.name=a", "--set workload.streams.7.name", "there are chat, agent"),
        ("workload.streams.agent.name=chat", "--set workload.streams.agent.name", "taken by another stream"),
        ("workload.format=azur", "--set workload.format", "unknown format"),
        ("seed=-1", "--set seed", "greater than or equal to 0"),
        ("name=a/b", "--set name", "as it names files"),
        ("arms.x.server=3", "--set arms.x.server", "the study has none"),
        ("thresholds.slo.attainment=>= 1 parsec", "--set thresholds.slo.attainment", "with a unit"),
        ("schema=2", "--set schema", "must be 1"),
        ("nonsense", "--set nonsense", "KEY=VALUE"),
        ("a b=3", "--set a b=3", "KEY=VALUE"),
        ("=3", "--set =3", "KEY=VALUE"),
    ],
)
def test_wrong_overrides_are_named(write, override: str, key: str, part: str) -> None:
    found = faults(write(STUDY), [override])
    assert any(key in str(fault) and part in fault.message for fault in found), found


def test_a_server_chooses_its_victims(write) -> None:
    settled = load_study(
        write(STUDY), ["server.engine=sglang-0.5", "server.victim=least-computed"]
    ).base.server.settle()
    assert (settled.admission, server_of(settled).victim) == ("estimated", "least-computed")


def test_options_are_named(write) -> None:
    assert [str(fault) for fault in faults(write(STUDY), seed=-1)] == [
        "--seed: must be greater than or equal to 0, got -1"
    ]
    assert [fault.key for fault in faults(write(STUDY), replications=0)] == ["--replications"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a = 1\nb = \n", 2),
        (b"a = 1\na = 2\n", 2),
        (b"\xff\xfe", None),
        (b"[" * 5000, 1),
        (b"a = " + b"[" * 100_000, 1),
        (b"a = {" + b"b = {" * 5_000, 1),
    ],
)
def test_what_is_no_toml(tmp_path: Path, content: bytes, line: int | None) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    (fault,) = faults(str(path))
    assert fault.file == path
    assert line is None or fault.line in (line, None)


def test_windows_files_are_read(write, tmp_path: Path) -> None:
    path = tmp_path / "crlf.toml"
    path.write_bytes(b"\xef\xbb\xbf" + (STUDY + "x = 1\n").replace("\n", "\r\n").encode())
    (fault,) = faults(str(path))
    assert fault.line == STUDY.count("\n") + 1


def test_no_such_study(tmp_path: Path) -> None:
    (fault,) = faults("quikstart")
    assert "did you mean 'quickstart'?" in fault.message
    (fault,) = faults(str(tmp_path))
    assert "no such file" in fault.message


@given(st.binary(max_size=60))
def test_no_file_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "a.toml"
    path.write_bytes(content)
    assert faults(str(path))


VALUES = st.recursive(
    st.one_of(
        st.integers(), st.floats(), st.booleans(), st.text(max_size=5), st.sampled_from(["adaptive", "auto", "4k"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["name", "kind", "rate", "min"]), inner)
    ),
    max_leaves=4,
)
PLACES = [
    "name", "seed", "run", "run.kind", "run.horizon", "run.warmup", "run.replications", "server", "server.model",
    "server.gpu", "server.step_time", "server.kv_tokens", "policy", "policy.output", "policy.output.name",
    "policy.output.first_cap", "workload", "workload.streams", "workload.streams.chat",
    "workload.streams.chat.arrivals",
    "workload.streams.chat.scripts", "workload.streams.chat.output.p99", "arms", "slo", "thresholds", "workload.format",
]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_no_value_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, values: list[tuple[str, object]]) -> None:
    from sim.study.toml import inline

    path = tmp_path_factory.mktemp("fuzz") / "a.toml"
    path.write_text(STUDY)
    try:
        load_study(str(path), [f"{place}={inline(value)}" for place, value in values])
    except BadInput as error:
        said = [str(fault) for fault in error.faults]
    else:
        said = []
    assert not any("\n" in fault for fault in said)


def test_a_limit_beyond_the_window_is_named(write) -> None:
    arms = "[arms.a]\npolicy.output.first_cap = 60_000\n[arms.b]\nserver.window = 50_000\n"
    path = write(STUDY + arms + "[arms.c]\nserver.window = 9_000\n")
    assert lines(faults(path, ["server.window=55_000"])) == {
        (24, "arms.a.policy.output.first_cap"): "60,000 tokens are above the model's window, 55,000",
        (9, "policy.output.margin_tokens"): "10,000 leave no room for an answer in the model's window, 9,000",
    }


def test_prompts_beyond_the_window_are_named_by_line(write, tmp_path: Path) -> None:
    rows = "\n2023-11-16 18:00:02.0000000,131072,1\n2023-11-16 18:00:03.0000000,7,1\n"
    (tmp_path / "trace.csv").write_text(AZURE + rows)
    arms = "[arms.a]\n[arms.b]\nworkload.time_scale = 2\n[arms.c]\nserver.window = 1000\n"
    arms += "policy.output = { name = 'fixed', max_tokens = 500, margin_tokens = 0 }\n"
    study = load_study(write(STUDY + arms), [f"workload.path={tmp_path / 'trace.csv'}"])
    with pytest.raises(BadInput) as raised:
        study.sources()
    said = [(fault.line, fault.key, fault.message) for fault in raised.value.faults]
    message = "131,072 tokens leave no room for an answer in the window of"
    assert said == [(5, "prompt_tokens", f"{message} {window}") for window in ("131,072", "1,000")]


def test_bad_rows_of_a_trace_are_named_by_line(write, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE + "2023-11-16 18:00:02.0000000,-1,x\n")
    study = load_study(write(STUDY), [f"workload.path={tmp_path / 'trace.csv'}"])
    with pytest.raises(BadInput) as raised:
        study.sources()
    assert {fault.line for fault in raised.value.faults} == {4}


# numbers with units


@given(
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9),
    st.sampled_from([*DURATIONS, *SIZES]),
)
def test_a_quantity_is_its_number_times_its_unit(number: float, unit: str) -> None:
    units = {**DURATIONS, **SIZES}
    assert parse(f"{number!r} {unit}", units) == pytest.approx(number * units[unit], rel=1e-12, abs=1e-11)


@pytest.mark.parametrize(
    ("text", "value"), [("30min", 1800), ("1.5h", 5400), ("250ms", 0.25), ("312_000", 312_000), ("7", 7)]
)
def test_quantities(text: str, value: float) -> None:
    assert parse(text, DURATIONS) == value


@pytest.mark.parametrize("value", ["", "min", "3 4", "1e", "0x10", "1e999", math.nan, math.inf, True, None, [], "3 k"])
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse(value, DURATIONS)


# what is bundled, the schema, the reference


@pytest.mark.parametrize("name", templates())
def test_bundled_studies_are_right_or_say_which_path_they_need(name: str, tmp_path: Path) -> None:
    try:
        study = load_study(name)
    except BadInput as error:
        (fault,) = error.faults
        assert fault.key == "workload.path"
        assert "--set workload.path=" in fault.message
        trace = tmp_path / "trace"
        trace.write_text("")
        study = load_study(name, [f"workload.path={trace}"])
    assert study.name == name
    assert study.path is None
    assert len(study.arms) > 1
    if not study.has_agents:
        assert Progressive() in [arm.policy_output.build() for arm in study.arms.values()]


def test_the_schema_holds_together() -> None:
    schema = json_schema()
    definitions = schema["$defs"]

    def refer(node: object) -> list[str]:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        own = [node["$ref"]] if isinstance(node, dict) and isinstance(node.get("$ref"), str) else []
        return own + [ref for item in inner for ref in refer(item)]

    assert {ref.removeprefix("#/$defs/") for ref in refer(schema)} <= set(definitions)
    assert {"server", "policy", "workload", "arms", "schema", "run"} <= set(schema["properties"])
    assert "required" not in definitions["partial.ServerTable"]
    assert definitions["ServerTable"]["required"] == ["engine"]


def test_the_reference_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "study.md"
    assert page.read_text(encoding="utf-8") == markdown(), "python -m sim.study.reference > docs/study.md"


def test_the_reference_says_of_every_key_what_it_is() -> None:
    rows = [line.split(" | ") for line in markdown().splitlines() if line.startswith("| `")]
    assert [row for row in rows if not row[-1].strip(" |")] == []


MIXTURE = """output = { kind = "mixture", parts = [
    { kind = "constant", tokens = 5 },
    { kind = "lognormal", median = 9, sigma = 1, weight = 3 },
] }"""


def test_a_mixture_of_lengths_may_be_written_and_what_is_wrong_in_it_has_its_place(write) -> None:
    text = STUDY.replace('output = { kind = "geometric", mean = 300 }', MIXTURE)
    law = load_study(write(text)).base.workload.streams[1].output.build()
    assert law.moments() == LENGTHS["mixture"](parts=tomllib.loads(MIXTURE)["output"]["parts"]).moments()
    again = load_study(write(load_study(write(text)).resolved(), "again.toml"))
    assert again.base.workload.streams[1].output.build() == law
    wrong = text.replace("median = 9", "medan = 9").replace("tokens = 5 }", "tokens = 5, weight = -3 }")
    place = "workload.streams.1.output.parts"
    assert {fault.key for fault in faults(write(wrong))} == {f"{place}.0.weight", f"{place}.1.medan"}
    for parts in ("3", "[3]", "[]", "[{ kind = 'constant', tokens = 5, weight = 0 }]"):
        head = text.partition("parts = ")[0]
        (fault,) = faults(write(f"{head}parts = {parts} }}\n"))
        assert fault.key.startswith("workload.streams.1.output.parts")


def test_a_study_may_name_what_is_known_to_run_in_the_wild(write) -> None:
    for name, profile in PROFILES.items():
        study = load_study("quickstart", [f"policy.output.name={name}"])
        assert study.arms["adaptive"].policy_output.build() == profile.policy
        again = load_study(write(study.resolved()))
        assert again.arms["adaptive"].policy_output.build() == profile.policy
    changed = load_study("quickstart", ["policy.output={ name = 'seed-2026', recoveries = 1 }"]).arms["adaptive"]
    built, seed = changed.policy_output.build(), PROFILES["seed-2026"].policy
    assert (built.recoveries, built.table, built.rules) == (1, "0.15", seed.rules)
    with pytest.raises(BadInput, match=r"unknown output policy 'seed-2025'.* - did you mean 'seed-2026'\?"):
        load_study("quickstart", ["policy.output.name=seed-2025"])
    with pytest.raises(BadInput, match="escalated_floor: 7 is below first_cap"):
        load_study("quickstart", ["policy.output={ name = 'seed-2026', escalated_floor = 7 }"])
