"""Step-time constants fitted to measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="A request log (requests.jsonl, or its folder), tables of load tests (CSV), or result files of "
            "vllm bench serve, AIPerf or GuideLLM (JSON).",
        ),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the model here (TOML).")] = None,
    gpu: Annotated[
        str | None, typer.Option(help="What served it, unless a column says so.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="What was served.", show_default=False)] = None,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that held the model together.")] = 1,
    weights: Annotated[str | None, typer.Option(help="Number type of the weights.", show_default=False)] = None,
    kv: Annotated[str, typer.Option(help="Number type of keys and values.")] = "bf16",
    kv_tokens: Annotated[int | None, typer.Option(min=1, help="Size of the KV pool.", show_default=False)] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Most requests running.", show_default=False)] = None,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a step.")] = 8_192,
    kind: Annotated[
        str | None, typer.Option(help="roofline or line; roofline if GPU and model are known.", show_default=False)
    ] = None,
    where: Annotated[list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Rows of tables to take.")] = None,
    ttft: Annotated[bool, typer.Option(help="Whether to fit load tests to TTFT too.")] = True,
    engine: Annotated[str, typer.Option(help="For the provenance.")] = "",
    engine_version: Annotated[str, typer.Option(help="For the provenance.")] = "",
    date: Annotated[str, typer.Option(help="When it was measured, for the provenance.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Fit step-time constants to measurements, and say how far they may be trusted."""
    from sim.calibrate import calibrate_log, calibrate_points, read_points
    from sim.calibrate.fit import FAMILIES
    from sim.calibrate.points import Given
    from sim.calibrate.write import to_json, to_toml
    from sim.hardware import BYTES, find_gpu, find_model
    from sim.measured import read_passage
    from workloads.errors import BadInput, Fault, did_you_mean

    faults = []
    wanted = {}
    for text in where or []:
        column, equals, value = text.partition("=")
        if not equals:
            faults.append(Fault(f"is {text!r}: COLUMN=VALUE", key="--where"))
        wanted[column.strip()] = value.strip()
    for option, word in (("--weights", weights), ("--kv", kv)):
        if word is not None and word not in BYTES:
            faults.append(Fault(f"is {word!r}: one of {', '.join(BYTES)}{did_you_mean(word, BYTES)}", key=option))
    if kind is not None and kind not in FAMILIES:
        faults.append(Fault(f"is {kind!r}: one of {', '.join(FAMILIES)}{did_you_mean(kind, FAMILIES)}", key="--kind"))
    if faults:
        raise BadInput(*faults)
    given = Given(
        find_gpu(gpu, key="--gpu") if gpu else None,
        find_model(model, key="--model") if model else None,
        tensor_parallel,
        weights,
    )
    log = data[0] / "requests.jsonl" if (data[0] / "requests.jsonl").exists() else data[0]
    if log.suffix == ".jsonl":
        if len(data) > 1 or wanted or kind == "roofline":
            raise BadInput(Fault("a request log is fitted alone, whole, and to a line", log))
        passage = read_passage(log)
        found = calibrate_log(passage, max_num_seqs=max_num_seqs, budget=max_num_batched_tokens, kv_tokens=kv_tokens)
        number = f"{len(passage.queued_s)} requests"
    else:
        points = read_points(data, given, wanted)
        found = calibrate_points(points, kind, kv=kv, kv_tokens=kv_tokens, budget=max_num_batched_tokens, use_ttft=ttft)
        number = f"{len(points)} load tests"
        served = {(p.gpu.title if p.gpu else "", p.weights) for p in points}
        if found.kind == "roofline" and len(served) > 1:
            kinds = ", ".join(sorted(f"{name} {number_type or ''}".strip() for name, number_type in served))
            raise BadInput(
                Fault(f"one calibration is of one kind of GPU and weights, these are of {kinds}: see --where")
            )
        weights = next(iter(served))[1] if found.kind == "roofline" else None
        gpu = gpu or next(iter(served))[0]
    rows = "".join(f", {column} = {value}" for column, value in wanted.items())
    provenance = {
        "engine": engine,
        "version": engine_version,
        "hardware": gpu or "",
        "date": date,
        "source": f"{number} of {', '.join(path.name for path in data)}{rows}",
    }
    if output is not None:
        try:
            output.write_text(to_toml(found, provenance, weights), encoding="utf-8")
        except OSError as error:
            raise BadInput(Fault(f"cannot be written: {error.strerror}", output, key="-o")) from None
    if as_json:
        print(json.dumps(to_json(found) | {"provenance": provenance}, indent=2, allow_nan=False))
        return
    print(f"{found.kind} fitted to {provenance['source']}; every second one held out")
    print(f"{'constant':24}{'value':>12}   95 % interval")
    for name, (best, low, high) in found.constants.items():
        print(f"{name:24}{best:12.4g}   {low:.4g} to {high:.4g}")
    for metric, errors in found.held_out.items():
        figures = f"median {errors.median:.1%}, 90 % below {errors.p90:.1%}, bias {errors.bias:+.1%}"
        print(f"held-out {metric.upper():15}{figures} ({errors.points})")
    for name, (low, high) in found.covers.items():
        print(f"covers {name:17}{low:,.0f} to {high:,.0f}")
    if found.kv_tokens is not None:
        print(f"{'KV pool':24}{'at least ' if found.kv_is_at_least else ''}{found.kv_tokens:,} tokens")
    for note in found.notes:
        print(f"note: {note}")
