"""What a study is, and what studies may name, in words and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from sim.study import toml
from sim.study.study import Study, plain
from sim.study.tables import Arm, Replications, WorkloadTable


def about(study: Study) -> dict[str, Any]:
    """Return the study in figures: how it is run, and each arm's server, policy and workload."""
    run = study.run
    return {
        "study": study.name,
        "seed": study.seed,
        "kind": run.kind,
        "horizon_s": run.horizon_s,
        "warmup_s": run.warmup_s,
        "replications": plain(run.replications),
        "arms": {name: _arm(arm) for name, arm in study.arms.items()},
    }


def _arm(arm: Arm) -> dict[str, Any]:
    server, workload = arm.server.settle(), arm.workload
    return {
        "engine": server.engine.name,
        "admission": server.admission,
        "model": server.model and server.model.name,
        "gpu": server.gpu and server.gpu.name,
        "tensor_parallel": server.tensor_parallel,
        "kv_tokens": server.kv_tokens,
        "window": server.window,
        "policy": arm.policy_output.chosen,
        "constants": plain(arm.policy_output.constants),
        "context_policy": arm.policy_context and arm.policy_context.chosen,
        "workload": workload.path or _users(workload),
    }


def _users(workload: WorkloadTable) -> list[str]:
    return [str(table.constants["name"]) for table in workload.agents] or [stream.name for stream in workload.streams]


def describe(study: Study) -> str:
    """Return the same for people: a line for the study and one for each arm."""
    run = study.run
    whole = "whole sessions" if next(iter(study.arms.values())).workload.agents else "the whole trace"
    span = whole if run.horizon_s is None else f"{run.horizon_s:g} s"
    rule = run.replications
    times = (
        f"{rule.min} to {rule.max} replications until {rule.metric} is within {rule.precision:.1%}"
        if isinstance(rule, Replications)
        else f"{rule} replication{'s' if rule > 1 else ''}"
    )
    lines = [f"{study.name}: {run.kind}, {span}, {times}, seed {study.seed}"]
    width = max(map(len, study.arms))
    baselines = [next(iter(part.arms)) for part in study.by_case().values() if len(part.arms) > 1]
    for name, arm in study.arms.items():
        facts = _arm(arm)
        hardware = f"{facts['tensor_parallel']} x {facts['gpu']}" if facts["gpu"] else "no GPU named"
        workload = facts["workload"]
        kind = "agents" if arm.workload.agents else "streams"
        users = workload if isinstance(workload, str) else f"{kind} {', '.join(workload)}"
        context = f" and {facts['context_policy']}" if facts["context_policy"] else ""
        lines.append(
            f"  {name:{width}}  {facts['policy']}{context} on {facts['engine']} ({facts['admission']}),"
            f" {facts['model'] or 'no model'} on {hardware}, {facts['kv_tokens']:,} KV tokens,"
            f" window {facts['window']:,}; {users}"
            f"{'  (baseline)' if name in baselines else ''}"
        )
    return "\n".join(lines)


def origin(arm: Arm) -> dict[str, Any]:
    """Return where the constants of an arm's server are from, as plain values."""
    settled = arm.server.settle()
    return {
        "engine": settled.engine.name,
        "engine_version": settled.engine.version,
        "engine_source": settled.engine.source,
        "admission": settled.admission,
        "kv_tokens": settled.kv_tokens,
        "window": settled.window,
        "step_time": asdict(settled.step_time.provenance),
    }


def origins(study: Study) -> list[str]:
    """Return the same for people: a line for each engine and step-time model, and whose it is where they differ."""
    lines = []
    for what, say in (("engine", _engine), ("step time", lambda arm: str(arm.server.settle().step_time.provenance))):
        said: dict[str, list[str]] = {}
        for case, part in study.by_case().items():
            own: dict[str, list[str]] = {}
            for name, arm in part.arms.items():
                own.setdefault(say(arm), []).append(name)
            for line, names in own.items():
                said.setdefault(line, []).extend([case] if case and len(own) == 1 else names)
        several = len(said) > 1
        lines += [f"{what} of {', '.join(who)}: {line}" if several else f"{what}: {line}" for line, who in said.items()]
    return lines


def _engine(arm: Arm) -> str:
    engine = arm.server.settle().engine
    return f"{engine.name} {engine.version}: {engine.source}"


def _gpus() -> list[dict[str, Any]]:
    from sim.hardware import GPUS

    return [
        {
            "name": name,
            "bf16 TFLOP/s": round(gpu.flops["bf16"] / 1e12),
            "memory GB": round(gpu.memory / 1e9),
            "memory GB/s": round(gpu.memory_bandwidth / 1e9),
            "link GB/s": round(gpu.link_bandwidth / 1e9),
            "also": ", ".join(gpu.aliases),
        }
        for name, gpu in GPUS.items()
    ]


def _models() -> list[dict[str, Any]]:
    from sim.hardware import MODELS

    return [
        {
            "name": name,
            "parameters 1e9": round(model.total_parameters / 1e9, 1),
            "active 1e9": round(model.active_parameters / 1e9, 1),
            "layers": model.layers,
            "KV bytes/token": round(model.kv_bytes_per_token()),
            "window": model.window,
            "also": ", ".join(model.aliases),
        }
        for name, model in MODELS.items()
    ]


def _engines() -> list[dict[str, Any]]:
    from sim.replica.engines import ENGINES

    return [
        {
            "name": engine.name,
            "admission": engine.admission,
            "block_tokens": engine.block_tokens,
            "max_num_seqs": engine.max_num_seqs,
            "max_num_batched_tokens": engine.max_num_batched_tokens,
            "chunked_prefill": engine.chunked_prefill,
            "memory_share": engine.memory_share,
            "source": engine.source,
        }
        for engine in ENGINES.values()
    ]


def _policies() -> list[dict[str, Any]]:
    from policies.context import CONTEXT_POLICIES
    from policies.output import POLICIES
    from policies.profiles import PROFILES
    from sim.study.choices import first_line, table_of
    from sim.study.tables import KNOWN

    known = {name: (policy, PROFILES[name].source) for name, policy in KNOWN.items()}
    kinds: dict[str, dict[str, tuple[Any, str]]] = {
        "output": {name: (policy, first_line(policy)) for name, policy in POLICIES.items()} | known,
        "context": {name: (policy, first_line(policy)) for name, policy in CONTEXT_POLICIES.items()},
    }
    listed = []
    for kind, policies in kinds.items():
        for name, (policy, what) in policies.items():
            fields = table_of(policy, "name", name).model_fields
            constants = {k: f.get_default(call_default_factory=True) for k, f in fields.items() if k != "name"}
            said = ", ".join(f"{key} = {toml.inline(plain(value))}" for key, value in constants.items())
            listed.append({"kind": kind, "name": name, "what": what, "constants": said})
    return listed


def _metrics() -> list[dict[str, Any]]:
    from sim.metrics import METRICS

    return [{"name": m.name, "unit": m.unit, "better": m.better, "definition": m.definition} for m in METRICS.values()]


LISTS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "gpus": _gpus,
    "models": _models,
    "engines": _engines,
    "policies": _policies,
    "metrics": _metrics,
}
"""What ``slotsim list`` knows: rows of columns."""
