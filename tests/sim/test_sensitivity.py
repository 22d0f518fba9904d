"""Studies with other assumptions: what each of them leaves of the comparison as written."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sim.experiment import ArmResult, Results, conduct, conduct_cases
from sim.metrics import METRICS
from sim.report.summary import dumps, sensitivity, summarise
from sim.report.tables import show
from sim.sensitivity import survivals
from sim.stats import compare, t_interval
from sim.study import Study, load_study
from sim.study.about import origins
from sim.study.schema import json_schema
from workloads.errors import BadInput

STUDY = """schema = 1
name = "assumed"
seed = 11
[run]
kind = "terminating"
horizon = "10min"
replications = 4
[server]
engine = "trtllm-no-evict"
kv_tokens = 40_000
window = 40_000
step_time = { kind = "line", base_s = 0.002 }
[policy.output]
name = "fixed"
max_tokens = 10_000
[[workload.streams]]
name = "chat"
arrivals = { kind = "poisson", rate = 1.0 }
prompt = { kind = "constant", tokens = 100 }
output = { kind = "lognormal", median = 200, p99 = 3_000, max = 9_000 }
"""
ARMS = """[arms.whole]
[arms.small]
policy.output = { name = "adaptive", first_cap = 500, escalated_floor = 10_000 }
"""
ASSUMED = """[sensitivity.slow]
server.step_time.base_s = 0.03
[sensitivity.short]
workload.streams.chat.output = { kind = "constant", tokens = 300 }
"""
TIME, WASTE = "call.e2e_s.mean", "tokens.wasted_share"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, dict[str, Results]]:
    """Return the study with its assumptions, and what it finds."""
    path = tmp_path_factory.mktemp("ran") / "study.toml"
    path.write_text(STUDY + ARMS + ASSUMED)
    study = load_study(str(path))
    return study, run(study)


def run(study: Study, jobs: int = 1) -> dict[str, Results]:
    return conduct_cases(study, jobs, lambda: None, lambda *_: None)


def faults(text: str, *overrides: str) -> list[str]:
    with pytest.raises(BadInput) as raised:
        load_study(text, overrides)
    return [str(fault) for fault in raised.value.faults]


# what an assumption means


def test_assumptions_stand_beside_the_arms_as_written(write) -> None:
    study = load_study(write(STUDY + ARMS + ASSUMED))
    plain = load_study(write(STUDY + ARMS))
    assert study.sensitivity == ("slow", "short")
    parts = study.by_case()
    assert list(parts) == ["", "slow", "short"]
    assert parts[""].arms == plain.arms
    assert list(parts["slow"].arms) == ["slow/whole", "slow/small"]
    assert {arm.server.settle().step_time.segment(1, 1)[0] for arm in parts["slow"].arms.values()} == {0.03}
    assert parts["slow"].by_case().keys() == {""}
    alone = study.only("slow/whole")
    assert list(alone.by_case()[""].arms) == ["slow/whole"]
    assert not study.only("whole").sensitivity


def test_the_resolved_study_is_the_same_study(write) -> None:
    study = load_study(write(STUDY + ARMS + ASSUMED), [f"run.rank_by=['{TIME}']"])
    resolved = study.resolved()
    again = load_study(write(resolved))
    assert (again.arms, again.sensitivity, again.run) == (study.arms, study.sensitivity, study.run)
    assert again.resolved() == resolved


def test_what_is_wrong_with_assumptions(write) -> None:
    both = faults(write(STUDY + ARMS + ASSUMED + "[cases.a]\nserver.max_num_seqs = 3\n"))
    assert any("sensitivity: a study has [cases] or a [sensitivity]" in fault for fault in both)
    for arms in ("", "[arms.only]\n"):
        assert any("at least two" in fault for fault in faults(write(STUDY + arms + ASSUMED)))
    text = write(STUDY + ARMS + ASSUMED)
    (unknown,) = faults(text, "sensitivity.slo.server.max_num_seqs=3")
    assert "unknown assumption 'slo', there are slow, short - did you mean 'slow'?" in unknown
    (flat,) = faults(
        write(STUDY + ARMS + "[sensitivity.flat]\npolicy.output = 'greedy-max'\n".replace("greedy-max", "fixed"))
    )
    assert "leaves no difference between the arms whole and small" in flat
    (key,) = faults(write(STUDY + ARMS + "[sensitivity.slow]\nserver.step_tme = 'line'\n"))
    assert "did you mean 'step_time'?" in key
    agents = STUDY.partition("[[workload")[0] + "[[workload.agents]]\nkind = 'synthetic'\nname = 'a'\ncount = 1\n"
    told = faults(
        write(agents.replace('horizon = "10min"\n', "") + ARMS + "[sensitivity.a]\nserver.max_num_seqs = 3\n")
    )
    assert any("a study of agents compares its arms only" in fault for fault in told)


def test_the_schema_knows_assumptions() -> None:
    assert json_schema()["properties"]["sensitivity"]["additionalProperties"]["title"] == "Assumption"


# what it leaves


def results(prefix: str, arms: dict[str, list[float] | None], metric: str = TIME) -> Results:
    """Return results that hold the replications of one metric; None is an unstable arm."""
    values = {f"{prefix}{name}": given for name, given in arms.items()}
    found = {
        name: ArmResult(
            "steady" if given else "unstable", {metric: t_interval(given or [])}, [{metric: v} for v in given or []]
        )
        for name, given in values.items()
    }
    (_, base), *others = values.items()
    comparisons = {
        (name, metric): compare(base, given, METRICS[metric].better) for name, given in others if given and base
    }
    return Results(found, comparisons, 4, (0.0, 1.0), [], 0, 0.0)


SLOW, FAST, LIKE, WIDE = [9.0, 9.1, 9.0, 8.9], [5.0, 5.1, 5.0, 4.9], [9.01, 9.09, 9.01, 8.9], [3.0, 20.0, 2.0, 14.0]


@pytest.mark.parametrize(
    ("written", "assumed", "verdict", "order"),
    [
        ([SLOW, FAST], [SLOW, FAST], "survives", "survives"),
        ([SLOW, FAST], [FAST, SLOW], "turns", "turns"),
        ([SLOW, FAST], [SLOW, WIDE], "opens", "opens"),
        ([SLOW, FAST], [SLOW, LIKE], "opens", "opens"),
        ([SLOW, FAST], [SLOW, None], "opens", "turns"),  # no verdict on an unstable arm, but it is behind
        ([SLOW, FAST], [None, FAST], "opens", "survives"),
        ([SLOW, LIKE], [SLOW, LIKE], "survives", None),
        ([SLOW, LIKE], [SLOW, FAST], "turns", None),
        ([SLOW, LIKE], [SLOW, WIDE], "opens", None),
        ([SLOW, WIDE], [SLOW, FAST], None, None),  # nothing was said, nothing can be lost
    ],
)
def test_what_is_left_of_a_verdict_and_of_an_order(write, written, assumed, verdict, order) -> None:
    study = load_study(write(STUDY + ARMS + "[sensitivity.a]\nserver.max_num_seqs = 9\n"), [f"run.rank_by=['{TIME}']"])
    names = ("whole", "small")
    found = {
        "": results("", dict(zip(names, written, strict=True))),
        "a": results("a/", dict(zip(names, assumed, strict=True))),
    }
    left = survivals(study, found)["a"]
    assert left.verdicts.get(("small", TIME)) == verdict
    assert left.orders == {TIME: order}


def test_waiting_makes_small_reservations_better_and_an_idle_server_does_not(ran) -> None:
    """Without waiting, an answer begun twice only costs; with slow steps, two of four whole reservations block."""
    study, found = ran
    left = survivals(study, found)
    assert found[""].comparisons["small", TIME].verdict == "worse"
    assert left["slow"].verdicts["small", TIME] == left["slow"].orders[TIME] == "turns"
    assert left["slow"].verdicts["small", WASTE] == "survives"
    assert left["short"].verdicts["small", WASTE] != "survives"  # no answer is longer than the first limit


def test_the_summary_is_that_of_the_study_without_assumptions_and_a_block(ran, write) -> None:
    (study, found), plain = ran, load_study(write(STUDY + ARMS))
    document = summarise(study, found[""], "c", {})
    assert dumps(document) == dumps(summarise(plain, conduct(plain, 1, lambda: None, lambda *_: None), "c", {}))
    block = json.loads(dumps(sensitivity(study, found)))
    assert block.keys() == {"slow", "short"}
    slow = block["slow"]
    assert slow["arms"].keys() == {"slow/whole", "slow/small"}
    assert slow["arms"]["slow/small"]["provenance"]["step_time"]["constants"] != {}
    assert slow["orders"][TIME] == "turns"
    said = {(c["arm"], c["metric"]): c["survival"] for c in slow["comparisons"]}
    assert said["slow/small", TIME] == "turns"
    assert set(said.values()) <= {"survives", "opens", "turns", None}
    written = {(c["arm"], c["metric"]): c["verdict"] for c in json.loads(dumps(document))["comparisons"]}
    assert all((said[f"slow/{arm}", metric] is None) == (v == "undecided") for (arm, metric), v in written.items())
    assert dumps(sensitivity(study, run(study, jobs=2))) == dumps(sensitivity(study, found))


def test_what_a_person_sees(ran) -> None:
    study, found = ran
    unwell = replace(found["slow"], warnings=["slow/whole is unwell"])
    lines = printed(study, {**found, "slow": unwell})
    (title,) = [line for line in lines if "what other assumptions leave of it" in line]
    assert "decided answers survive them all" in title
    (row,) = [line for line in lines if line.strip().startswith(f"order by {TIME}")]
    assert row.split()[3:9] == ["1", "of", "1", "pairs", "sure", "turns"]
    (time,) = [line for line in lines if line.strip().startswith("small: mean call time")]
    assert time.split()[4:6] == ["worse", "turns"]
    assert "note: slow: whole is unwell" in lines
    assert not any("leave of it" in line for line in printed(replace(study, sensitivity=()), found))


def printed(study: Study, found: dict[str, Results]) -> list[str]:
    console = Console(file=io.StringIO(), width=80, no_color=True)
    show(study, found, Path("there"), console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_reports_say_where_each_step_time_is_from(ran) -> None:
    study, found = ran
    lines = printed(study, found)
    (engine,) = [line for line in lines if line.startswith("engine")]
    assert engine.startswith("engine: trtllm-no-evict 1.x: TensorRT-LLM")
    times = [line for line in lines if line.startswith("step time")]
    assert times == [
        "step time of whole, small, short: line: base_s 0.002; constants given by the study",
        "step time of slow: line: base_s 0.03; constants given by the study",
    ]
    (alone,) = [line for line in origins(study.only("slow/small")) if line.startswith("step time")]
    assert alone == "step time: line: base_s 0.03; constants given by the study"
