# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A first comparison
#
# A client asks a model server for an answer and says how long it may get: `max_tokens`. The server does not know how
# long the answer will be, so many servers keep room for the longest one allowed. Ask for 32,000 tokens, and a server
# with room for 312,000 runs nine requests at once, though the median answer has 600 tokens. Ask for 8,000, and it
# runs more of them; but now and then an answer is cut off and has to be written again.
#
# Does that pay? We ask the simulator, with the very code that clients run. Everything here runs in seconds. This file
# is a notebook in the percent format: `pip install '.[notebooks]'`, and Jupyter opens it through jupytext.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sim.experiment import Results, conduct
from sim.replication import Replication
from sim.study import load_study

# %% [markdown]
# ## The study
#
# A *study* says what is compared: a server, traffic, and the *arms*. `quickstart` is bundled. Its first arm is the
# baseline that the others are held against.

# %%
study = load_study("quickstart")
server = study.arms["adaptive"].server.settle()
print(f"{server.engine.name}: reserves as '{server.admission}' does, {server.kv_tokens:,} tokens of KV")
for name, arm in study.arms.items():
    print(f"{name:12} {arm.policy_output.build()!r}")

# %% [markdown]
# ## Running it
#
# The bundled study runs three hours ten times under each arm. We take one hour, four times: enough to look around.
# Every arm meets the same calls, so what differs is what the policies do.


# %%
def compare(*changes: str, replications: int = 4) -> tuple[Results, dict[str, list[Replication]]]:
    """Run the quick start with some of its keys changed; return what was found, and what happened."""
    changed = load_study("quickstart", ("run.horizon=1h", *changes), replications=replications)
    happened: dict[str, list[Replication]] = {name: [] for name in changed.arms}
    found = conduct(changed, 1, lambda: None, lambda name, number, run: happened[name].append(run))
    return found, happened


results, runs = compare()
sum(len(run.requests) for arm in runs.values() for run in arm)

# %% [markdown]
# ## The table
#
# A replication gives one number a metric; the interval says how far another four such hours may lie off. The
# *difference* is paired: both arms met the same calls, and what they share cancels. So it is much better known than
# the two means, and it is what decides.

# %%
METRICS = [
    "call.e2e_s.mean",
    "request.ttft_s.p99",
    "waiting.mean",
    "kv.reserved_share.mean",
    "truncated.first_share",
    "truncated.final_share",
    "tokens.wasted_share",
    "slo.attainment",
]


def answer(found: Results) -> pd.DataFrame:
    """Return mean, paired difference with its 95 % interval, and verdict, a row a metric and arm."""
    rows = []
    for metric in METRICS:
        for name, arm in found.arms.items():
            row = {"metric": metric, "arm": name, "mean": arm.metrics[metric].mean}
            comparison = found.comparisons.get((name, metric))
            if comparison is not None:
                difference = comparison.difference
                row |= {"difference": difference.mean, "from": difference.low, "to": difference.high}
                row["verdict"] = comparison.verdict
            rows.append(row)
    return pd.DataFrame(rows).set_index(["metric", "arm"])


answer(results).style.format(precision=3, na_rep="")

# %% [markdown]
# With 8,000 tokens hardly anybody waits. Somewhat less than one answer in a hundred is cut off first; `adaptive`
# writes it again with room enough, which throws some 5 % of the tokens away. Some verdicts are *undecided*: four
# hours cannot tell. More replications can, and the README shows what ten times three hours say.
#
# ## Who waits how long
#
# Means hide the tail. Here is the share of calls that take longer than a given time, all replications together.

# %%
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for name, arm in runs.items():
    times = np.sort(np.concatenate([run.calls["finished_s"] - run.calls["arrival_s"] for run in arm]))
    axes.step(times, 1 - np.arange(len(times)) / len(times), where="post", label=name)
axes.set(xscale="log", yscale="log", xlabel="time of a call, seconds", ylabel="share of calls that take longer")
axes.grid(alpha=0.3)
axes.legend()
plt.show()

# %% [markdown]
# The curves cross. Nine calls in ten are done sooner with 8,000 tokens; the one in a hundred that is cut off, and
# written again, pays for it.
#
# ## Where the room goes
#
# The light area is the share of the KV pool that the server has reserved, the dark one what is stored in it.

# %%
figure, rows = plt.subplots(len(runs), 1, figsize=(8, 5), sharex=True, sharey=True, layout="constrained")
for axes, (name, arm) in zip(rows, runs.items(), strict=True):
    series = arm[0].series
    minutes, spans = series.time_s[:-1] / 60, np.diff(series.time_s)
    axes.fill_between(minutes, np.diff(series.reserved) / spans / server.kv_tokens, step="post", color="#9ecae1")
    axes.fill_between(minutes, np.diff(series.used) / spans / server.kv_tokens, step="post", color="#08519c")
    axes.set(title=name, ylim=(0, 1))
rows[-1].set_xlabel("minutes")
plt.show()

# %% [markdown]
# ## Another constant
#
# Why 8,000, and not 4,000 or 16,000? Any key of a study can be changed, as `--set` does it on the command line.
# `arms.NAME.` reaches one arm.

# %%
caps = {}
for cap in (2_000, 4_000, 8_000, 16_000):
    found, _ = compare(f"arms.adaptive.policy.output.first_cap={cap}")
    caps[cap] = answer(found).xs("adaptive", level="arm").loc[["call.e2e_s.mean", METRICS[3], "tokens.wasted_share"]]
pd.concat(caps, names=["first_cap"]).swaplevel().sort_index().style.format(precision=3, na_rep="")

# %% [markdown]
# Each row is `adaptive` with that cap against `fixed-32k`. A lower cap is no end in itself: at 2,000 so many answers
# are cut that their second requests, which ask for 64,000, reserve more than a cap of 8,000 does, and a fifth of all
# tokens is thrown away. From 8,000 on the time hardly differs by what four hours can tell. Where the best point lies
# depends on the server, on its load and on the tail of the answers, which is the reason to simulate.
#
# ## Another server
#
# vLLM does not reserve for `max_tokens` at all: it admits by the prompt, and takes blocks as the answer grows. Three
# times the calls, because it can:

# %%
vllm, _ = compare("server.engine=vllm-0.33", "workload.streams.chat.arrivals.rate=1", replications=3)
answer(vllm).style.format(precision=3, na_rep="")

# %% [markdown]
# The same policies, the opposite answer: nothing is gained by asking for less, and what is thrown away is work that
# the server had to do. That is why no constant is right everywhere.
#
# ## From here
#
# - `slotsim init --template quickstart -o study.toml` writes the study to a file; put your server and your traffic
#   in, `slotsim validate study.toml` says what it became.
# - `slotsim trace describe FILE` looks at a recording of yours, `slotsim trace fit FILE` fits laws to it, and
#   `slotsim compare azure-trace --set workload.path=FILE` replays it.
# - `docs/model.md` tells what is simulated, `docs/limits.md` what is not.
