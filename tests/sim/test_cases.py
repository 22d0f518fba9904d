"""Studies with cases: all arms under each of several circumstances, and which place each arm takes."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from policies.output import Adaptive, Fixed
from sim.experiment import ArmResult, Results, conduct, conduct_cases, settings_of
from sim.metrics import METRICS
from sim.ranking import Places, rank, rankings, standing
from sim.report.plots import draw_cases
from sim.report.summary import dumps, summarise, summarise_cases
from sim.report.tables import csv, exit_code, show_cases
from sim.stats import t_interval
from sim.study import Study, load_study
from sim.thresholds import Threshold
from workloads.errors import BadInput
from workloads.lengths import Constant

STUDY = """schema = 1
name = "crossed"
seed = 3
[run]
horizon = "5min"
replications = 3
[server]
engine = "trtllm-no-evict"
kv_tokens = 60_000
window = 60_000
max_num_batched_tokens = 4_096
step_time = { kind = "line", base_s = 0.01, per_request_s = 0.0005 }
[policy.output]
name = "adaptive"
first_cap = 500
escalated_floor = 4_000
margin_tokens = 0
margin_share = 0
floor = 1
[[workload.streams]]
name = "chat"
arrivals = { kind = "poisson", rate = 1.0 }
prompt = { kind = "lognormal", median = 200, p99 = 2_000, max = 4_000 }
output = { kind = "lognormal", median = 100, p99 = 2_000, max = 20_000 }
"""
ARMS = """[arms.fixed]
policy.output = { name = "fixed", max_tokens = 4_000 }
[arms.adaptive]
"""
CASES = """[cases.as-is]
[cases.paged]
server.engine = "vllm-0.33"
[cases.long]
workload.streams.chat.prompt = { kind = "constant", tokens = 3_000 }
"""
METRIC = "call.e2e_s.mean"


def faults(text: str, *overrides: str) -> dict[tuple[int | None, str | None], str]:
    with pytest.raises(BadInput) as raised:
        load_study(text, overrides)
    return {(fault.line, fault.key): fault.message for fault in raised.value.faults}


def line(text: str, words: str) -> int:
    return next(number for number, one in enumerate(text.splitlines(), 1) if one.startswith(words))


def run(study: Study) -> dict[str, Results]:
    return conduct_cases(study, 1, lambda: None, lambda *_: None)


# what a case means


def test_every_case_is_laid_over_every_arm(write) -> None:
    study = load_study(write(STUDY + ARMS + CASES))
    assert list(study.cases) == ["as-is", "paged", "long"]
    assert list(study.arms) == [f"{case}/{arm}" for case in study.cases for arm in ("fixed", "adaptive")]
    assert study.arms["long/fixed"].policy_output.build() == Fixed(max_tokens=4_000)
    assert isinstance(study.arms["long/adaptive"].policy_output.build(), Adaptive)
    paged = study.arms["paged/fixed"].server.settle()
    assert (paged.admission, paged.kv_tokens) == ("prompt", 60_000)  # another engine, the rest of the server kept
    assert study.arms["as-is/fixed"].server.settle().admission == "full"
    prompts = {name: arm.workload.streams[0].prompt.build() for name, arm in study.arms.items()}
    assert {name for name, law in prompts.items() if law == Constant(3_000)} == {"long/fixed", "long/adaptive"}
    assert study.base.policy_output.build() == study.arms["as-is/adaptive"].policy_output.build()


def test_a_case_holds_for_an_arm_that_replaces_its_table(write) -> None:
    arm = "[arms.vllm]\nserver = { engine = 'vllm-0.33', kv_tokens = 50_000, window = 50_000, max_num_seqs = 4,"
    arm += " max_num_batched_tokens = 4_096, step_time = { kind = 'line', base_s = 0.01 } }\n"
    study = load_study(write(STUDY + "[arms.plain]\n" + arm + "[cases.slow]\nserver.step_time.base_s = 0.5\n"))
    steps = {name: arm.server.settle().step_time.segment(1, 1)[0] for name, arm in study.arms.items()}
    assert steps == {"slow/plain": 0.5005, "slow/vllm": 0.5}


def test_cases_without_arms_are_the_base_under_each(write) -> None:
    study = load_study(write(STUDY + CASES))
    assert list(study.arms) == ["as-is/base", "paged/base", "long/base"]
    assert study.arms["as-is/base"] == study.base


def test_a_case_may_bring_what_the_base_lacks(write) -> None:
    text = STUDY.replace("kv_tokens = 60_000\n", "") + "[arms.a]\n"
    assert list(load_study(write(text + "[cases.small]\nserver.kv_tokens = 70_000\n")).arms) == ["small/a"]
    missing = faults(write(text + "[cases.small]\nserver.max_num_seqs = 7\n"))
    assert any("needed for kv_tokens" in message for message in missing.values())


def test_overrides_reach_cases_and_arms(write) -> None:
    given = ["cases.long.workload.streams.chat.arrivals.rate=2", "arms.fixed.policy.output.max_tokens=3_000"]
    study = load_study(write(STUDY + ARMS + CASES), given)
    assert study.arms["long/fixed"].workload.streams[0].arrivals.build().rate == 2
    assert study.arms["as-is/fixed"].workload.streams[0].arrivals.build().rate == 1
    assert {arm.policy_output.build() for name, arm in study.arms.items() if "fixed" in name} == {
        Fixed(max_tokens=3_000)
    }


def test_the_resolved_study_is_the_same_study(write) -> None:
    study = load_study(write(STUDY + ARMS + CASES), ["run.rank_by=['makespan_s']", "slo.call.e2e_s=3"])
    resolved = study.resolved()
    again = load_study(write(resolved))
    assert (again.arms, again.cases, again.run, again.slo) == (study.arms, study.cases, study.run, study.slo)
    assert again.resolved() == resolved
    alone = study.only("long/fixed")
    (arm,) = load_study(write(alone.resolved())).arms.values()
    assert arm.server.settle() == alone.arms["long/fixed"].server.settle()


def test_a_case_may_last_longer(write) -> None:
    text = STUDY + ARMS + CASES.replace("[cases.long]\n", "[cases.long]\nrun = { horizon = '20min', warmup = 60 }\n")
    study = load_study(write(text))
    runs = {case: (run.horizon_s, run.warmup_s, run.replications) for case, run in study.cases.items()}
    assert runs == {"as-is": (300, "auto", 3), "paged": (300, "auto", 3), "long": (1_200, 60, 3)}
    assert study.only("long/fixed").run == study.by_case()["long"].run == study.cases["long"]
    assert {name: setting.horizon_s for name, setting in settings_of(study).items() if "fixed" in name} == {
        "as-is/fixed": 300,
        "paged/fixed": 300,
        "long/fixed": 1_200,
    }
    wrong = text.replace("warmup = 60", "replications = 7").replace("'20min'", "-5")
    at = line(wrong, "run = ")
    assert faults(write(wrong)).keys() == {(at, "cases.long.run.horizon"), (at, "cases.long.run.replications")}


# what is said about wrong ones


def test_faults_of_cases_name_their_lines(write) -> None:
    text = STUDY + ARMS + CASES + "[cases.bad]\nserver.kv_tokns = 5\npolcy.output = 'fixed'\n[cases]\n'a/b' = {}\n"
    found = faults(write(text.replace("[cases]\n'a/b' = {}", "[cases.'a/b']\nserver.max_num_seqs = 2")))
    first = line(text, "[cases.bad]")
    assert "did you mean 'kv_tokens'?" in found[first + 1, "cases.bad.server.kv_tokns"]
    assert "did you mean 'policy'?" in found[first + 2, "cases.bad.polcy"]
    assert any("it names files" in message for message in found.values())


def test_a_case_is_a_table(write) -> None:
    assert "must be a table of" in next(iter(faults(write(STUDY + "[cases]\na = 3\n")).values()))


def test_a_case_that_makes_two_arms_the_same_is_refused(write) -> None:
    text = STUDY + ARMS + "[cases.flat]\npolicy.output = { name = 'fixed', max_tokens = 50 }\n"
    assert faults(write(text)) == {
        (line(text, "[cases.flat]"), "cases.flat"): "leaves no difference between the arms fixed and adaptive"
    }
    load_study(write(STUDY + "[arms.a]\n[arms.b]\n[cases.c]\nserver.max_num_seqs = 9\n"))  # they were the same before


def test_cases_that_are_not_there(write) -> None:
    text = write(STUDY + ARMS + CASES)
    assert "unknown case 'lon', there are as-is, paged, long - did you mean 'long'?" in next(
        iter(faults(text, "cases.lon.server.max_num_seqs=3").values())
    )
    assert "the study has none" in next(iter(faults(write(STUDY), "cases.a.server.max_num_seqs=3").values()))


def test_what_cannot_be_ranked_by(write) -> None:
    ranked = STUDY.replace("replications = 3", "replications = 3\nrank_by = ['running.mean', 'call.e2e_s.mead']")
    found = faults(write(ranked + ARMS + CASES))
    at = line(ranked, "rank_by")
    assert "no better direction" in found[at, "run.rank_by.0"]
    assert "did you mean 'call.e2e_s.mean'?" in found[at, "run.rank_by.1"]
    alone = faults(write(ranked.replace("'running.mean', 'call.e2e_s.mead'", f"'{METRIC}'") + ARMS))
    assert alone == {(at, "run.rank_by"): "only the arms of [cases] and [sensitivity] are ranked, and there are none"}


def test_agents_have_no_cases(write) -> None:
    text = STUDY.partition("[[workload")[0] + "[[workload.agents]]\nkind = 'synthetic'\nname = 'a'\ncount = 1\n"
    text = text.replace('horizon = "5min"\n', "") + "[cases.a]\nserver.max_num_seqs = 3\n"
    assert any("a study of agents" in message for message in faults(write(text)).values())


# what a study with cases says


def test_a_case_says_what_the_study_of_it_alone_says(write) -> None:
    study = load_study(write(STUDY + ARMS + CASES))
    found = run(study)
    document = json.loads(dumps(summarise_cases(study, found, "c", {})))
    head, _, tail = STUDY.partition('{ kind = "lognormal", median = 200, p99 = 2_000, max = 4_000 }')
    single = load_study(write(f"{head}{{ kind = 'constant', tokens = 3_000 }}{tail}{ARMS}"))
    plain = summarise(single, conduct(single, 1, lambda: None, lambda *_: None), "c", {})
    assert {name: document["arms"][f"long/{name}"] for name in plain["arms"]} == json.loads(dumps(plain["arms"]))
    mine = [c for c in document["comparisons"] if c["arm"].startswith("long/")]
    assert [(c["difference"], c["verdict"], c["baseline"]) for c in mine] == [
        (c["difference"], c["verdict"], f"long/{c['baseline']}") for c in json.loads(dumps(plain["comparisons"]))
    ]
    assert document["cases"]["long"]["window_s"] == list(plain["window_s"])
    assert document.keys() == plain.keys() - {"window_s"} | {"cases"}
    assert list(document["cases"]["paged"]["ranking"]) == list(study.run.rank_by)
    assert document["cases"]["paged"]["ranking"][METRIC].keys() == {"fixed", "adaptive"}
    assert len(csv(*found.values()).splitlines()) == 1 + 6 * len(METRICS)


def test_processes_change_nothing(write) -> None:
    study = load_study(write(STUDY + ARMS + CASES), ["run.horizon=60"])
    one, two = (
        summarise_cases(study, conduct_cases(study, jobs, lambda: None, lambda *_: None), "", {}) for jobs in (1, 2)
    )
    assert dumps(one) == dumps(two)


def test_what_a_person_sees(write, tmp_path: Path) -> None:
    study = load_study(write(STUDY + ARMS + CASES), ["cases.paged.server.max_num_seqs=1"])
    found = run(study)
    console = Console(file=io.StringIO(), width=80, no_color=True)
    show_cases(study, found, Path("there"), console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(f"{case}: calls from" in printed for case in study.cases)
    assert "in how many of 3 cases" in printed
    assert printed.count("unstable") >= 2
    assert "paged/fixed is unstable" in printed
    assert "none in 1" in printed
    assert exit_code(study, *found.values()) == 0
    bounded = dataclasses.replace(study, thresholds={METRIC: Threshold.parse("<= 1min")})
    assert exit_code(bounded, *found.values()) == 3  # an unstable arm meets no bound
    assert exit_code(bounded, found["as-is"], found["long"]) == 0
    draw_cases(study, found, tmp_path / "cases.png")
    assert (tmp_path / "cases.png").stat().st_size > 10_000


def results(values: dict[str, list[float] | None], metric: str = METRIC) -> Results:
    """Return results of a case ``c`` that hold the replications of one metric; None is an unstable arm."""
    arms = {
        f"c/{name}": ArmResult(
            "steady" if given else "unstable",
            {metric: t_interval(given or [])},
            [{metric: value} for value in given or []],
        )
        for name, given in values.items()
    }
    return Results(arms, {}, 3, (0.0, 1.0), [], 0, 0.0)


def test_places_are_what_the_differences_leave_open() -> None:
    common = (0.0, 5.0, -5.0, 2.0)  # what all arms meet in a replication says nothing about their order
    own = {"slow": (30.0, 30.1, 29.9, 30.0), "fast": (10.0, 10.1, 9.9, 10.0), "twin": (10.1, 10.0, 10.0, 9.9)}
    values = {name: [a + b for a, b in zip(common, mine, strict=True)] for name, mine in own.items()}
    found = results({**values, "lost": None})
    places = {"slow": Places(3, 3), "fast": Places(1, 2), "twin": Places(1, 2)}
    assert rank("c", found, METRIC, 0.01) == {**places, "lost": Places(4, 4)}
    share = "tokens.wasted_share"
    assert rank("c", results({"a": [0.1, 0.2], "lost": None}, share), share, 0.01) == {"a": Places(1, 1), "lost": None}
    higher = "tokens.output_per_s"
    turned = rank("c", results({"a": [1.0, 1.1, 1.0], "b": [2.0, 2.1, 2.0]}, higher), higher, 0.01)
    assert turned == {"a": Places(2, 2), "b": Places(1, 1)}


def test_places_ask_more_of_a_pair_the_more_pairs_there_are() -> None:
    pair = {"a": [10.0, 10.5, 9.5, 10.2], "b": [10.9, 11.2, 10.5, 11.4]}
    assert rank("c", results(pair), METRIC, 0.0) == {"a": Places(1, 1), "b": Places(2, 2)}
    many = pair | {str(k): [50.0 + k, 51.0 + k, 49.0 + k, 50.0 + k] for k in range(8)}
    assert {name: rank("c", results(many), METRIC, 0.0)[name] for name in pair} == {
        "a": Places(1, 2),
        "b": Places(1, 2),
    }


@given(st.lists(st.lists(st.floats(0, 9), min_size=4, max_size=4), min_size=1, max_size=6), st.randoms())
@settings(max_examples=60, deadline=None)
def test_places_do_not_depend_on_the_order_of_the_arms(values: list[list[float]], random) -> None:
    arms = {str(k): value for k, value in enumerate(values)}
    shuffled = list(arms.items())
    random.shuffle(shuffled)
    places = rank("c", results(arms), METRIC, 0.01)
    assert places == rank("c", results(dict(shuffled)), METRIC, 0.01)
    known = [place for place in places.values() if place is not None]
    assert all(1 <= place.first <= place.last <= len(known) for place in known)
    assert sum(place.first == 1 for place in known) >= 1  # somebody may be the best


def test_the_places_of_true_equals_stay_open_in_95_of_100_cases() -> None:
    """Six arms without any difference: the chance that any pair is separated is at most 5 %."""
    generator = np.random.default_rng(5)
    wrong = 0
    for _ in range(400):
        arms = {str(k): [*(10 + generator.standard_normal(8))] for k in range(6)}
        wrong += any(place != Places(1, 6) for place in rank("c", results(arms), METRIC, 0.0).values())
    assert wrong <= 400 * 0.05 + 3 * (400 * 0.05 * 0.95) ** 0.5


def test_a_standing_counts_cases() -> None:
    assert standing([Places(1, 1), Places(1, 3), None, Places(2, 4)]) == standing(
        [Places(2, 4), Places(1, 3), Places(1, 1), None]
    )
    of = standing([Places(1, 1), Places(1, 3), None, Places(2, 4)])
    assert (of.surely_first, of.maybe_first, of.places, of.unplaced) == (1, 2, Places(1, 4), 1)
    assert standing([None]).places is None


def test_rankings_are_by_case_and_metric(write) -> None:
    study = load_study(write(STUDY + ARMS + "[cases.c]\n"), ["run.rank_by=['call.e2e_s.mean', 'tokens.wasted_share']"])
    found = run(study)
    assert rankings(study, found) == {
        "c": {metric: rank("c", found["c"], metric, 0.01) for metric in ("call.e2e_s.mean", "tokens.wasted_share")}
    }
