"""How well the simulated server meets a measured one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def measured(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Holds requests.jsonl and meta.json.")],
    profile: Annotated[Path, typer.Option(metavar="DIR", help="Kernel profile of the model on the GPU.")],
    kv_tokens: Annotated[int | None, typer.Option(min=1, help="Size of the KV pool.", show_default=False)] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Instead of the run's.", show_default=False)] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, help="Instead of the run's.", show_default=False)
    ] = None,
    step_overhead: Annotated[str, typer.Option(metavar="TIME", help="Added to every step, such as 3ms.")] = "0ms",
    allreduce_gbps: Annotated[
        float | None, typer.Option(help="GB/s of an all-reduce; needed with several GPUs.", show_default=False)
    ] = None,
    allreduce_latency: Annotated[
        str, typer.Option(metavar="TIME", help="Of the shortest all-reduce; NCCL expects 19.8us of two GPUs on PCIe.")
    ] = "0us",
    mixed: Annotated[
        str, typer.Option(help="Attention of prompts beside decodes: sum of both alone, or measured together.")
    ] = "sum",
    model: Annotated[
        str | None,
        typer.Option(help="Instead of the run's: a name, or a Hugging Face config.json.", show_default=False),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="Else the one a folder is named after.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Replay a measured run and print what was measured, what is simulated, and the error."""
    from sim.hardware import MODELS, find_gpu, find_model
    from sim.measured import compare, degree_of, gpu_of, model_of, read_run, replay, server_of
    from sim.quantities import DURATIONS, parse
    from sim.steptime import Profile
    from workloads.errors import BadInput, Fault

    def seconds(text: str, option: str) -> float:
        try:
            return float(parse(text, DURATIONS))
        except ValueError as error:
            raise BadInput(Fault(str(error), key=option)) from None

    step_s, allreduce_s = seconds(step_overhead, "--step-overhead"), seconds(allreduce_latency, "--allreduce-latency")
    known = gpu_of(profile, run_dir) if gpu is None else find_gpu(gpu, key="--gpu")
    served = None
    if model is not None:
        served = find_model({"path": model} if Path(model).is_file() else model, key="--model")
    run = read_run(run_dir, served)
    if (other := model_of(profile)) and run.model.name in MODELS and other.name != run.model.name:
        raise BadInput(
            Fault(f"is a profile of {other.name}, the run served {run.model.name}", profile, key="--profile")
        )
    if (degree_of(profile) or run.tensor_parallel) != run.tensor_parallel:
        message = f"is a profile for tensor parallel {degree_of(profile)}, the run used {run.tensor_parallel}"
        raise BadInput(Fault(message, profile, key="--profile"))
    try:
        step_time = Profile(
            str(profile),
            run.model,
            run.tensor_parallel,
            step_s=step_s,
            allreduce_gbps=allreduce_gbps,
            allreduce_s=allreduce_s,
            mixed=mixed,  # type: ignore[arg-type]  # checked there
            hardware=f"{run.tensor_parallel} x {known.title}" if known else "",
            engine="vLLM",
            version=run.version,
            date=run.date,
        )
    except ValueError as error:
        faults = [part.partition(": ") for part in str(error).split("; ")]
        options = {
            "step_s": "--step-overhead",
            "allreduce_gbps": "--allreduce-gbps",
            "allreduce_s": "--allreduce-latency",
            "mixed": "--mixed",
        }
        raise BadInput(*(Fault(text, key=options.get(key, key)) for key, _, text in faults)) from None
    server = server_of(
        run,
        step_time,
        known,
        kv_tokens=kv_tokens,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    simulated, preemptions = replay(run.passage, server)
    table = compare(run.passage, simulated)
    if as_json:
        settings = {
            "model": run.model.name,
            "kv_tokens": server.kv_tokens,
            "max_num_seqs": server.max_num_seqs,
            "max_num_batched_tokens": server.max_num_batched_tokens,
        }
        source = step_time.provenance
        provenance = {word: getattr(source, word) for word in source.__slots__}
        document = {"metrics": table, "preemptions": preemptions, "server": settings, "step_time": provenance}
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    print(f"{'metric':22}{'measured':>12}{'simulated':>12}{'error':>9}")
    for name, row in table.items():
        print(f"{name:22}{row['measured']:12.4g}{row['simulated']:12.4g}{row['error']:+9.1%}")
    print(f"{len(run.passage.queued_s)} requests, {preemptions} preemptions, KV pool {server.kv_tokens:,} tokens")
    print(f"step time: {step_time.provenance}")
