"""Jumping, stepping and the naive server agree under every step-time model, whatever the rule, in tiny pools too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.hardware import GPUS, MODELS
from sim.steptime import STEP_TIMES, Calibrated, Line, Profile, Regression, Roofline, StepTime
from tests.sim.profiles import TINY, grid, write_profile
from tests.sim.test_replica import SEEN, Watched, calls, check, servers

DENSE_GRID = ([0, 2, 9, 24], [0, 3, 11, 60], [0, 1, 3, 7], [0, 5, 12, 31])
"""Points so near each other that a few tokens cross several."""

CALIBRATION = """schema = 1
kind = "line"
[constants]
base_s = 0.0271828
per_request_s = 0.0021797
per_context_token_s = 0.00010397
per_prompt_token_s = 0.00051283
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[StepTime]]:
    """Return models of every kind."""
    folder = tmp_path_factory.mktemp("models")
    profile = str(write_profile(folder / "tp1", grid(*DENSE_GRID)))
    (folder / "fitted.toml").write_text(CALIBRATION)
    experts = Roofline(GPUS["h100"], MODELS["qwen3-30b-a3b"], layer_s=1e-3)
    fit = Regression("distserve/opt-13b/a100")
    early = replace(fit._fit, large_from=3)  # both regimes within the few requests of a test
    object.__setattr__(fit, "_fit", early)
    return {
        "line": [Line(0.0314159, 0.0010717, 1.17e-5, 1.0193e-3, 1.37e-5)],
        "roofline": [experts, replace(experts, tensor_parallel=4, draft_tokens=3, acceptance=0.7, draft_share=0.1)],
        "profile": [
            Profile(profile, TINY, step_s=0.0316228),
            Profile(profile, TINY, step_s=0.0316228, mixed="measured"),
            Profile(profile, TINY, 2, 0.0316228, 0.02),
        ],
        "regression": [fit, Regression("splitwise/llama-2-70b/h100-tp8")],
        "calibrated": [Calibrated(str(folder / "fitted.toml"), GPUS["h100"], MODELS["qwen3-8b"])],
    }


def test_all_three_agree_under_every_model(models: dict[str, list[StepTime]]) -> None:
    assert models.keys() == STEP_TIMES.keys()
    SEEN.clear()
    for kind in models:
        agree(models[kind])
    assert all(SEEN[what] for what in ("preemption", "a prompt in pieces", "a segment that ends")), SEEN


def agree(models: list[StepTime]) -> None:
    """Hold one kind to single steps; odd constants keep ends of steps off the ticks, where rounding picks the side."""

    @settings(max_examples=60)
    @given(server=servers(lambda draw: draw(st.sampled_from(models))), arrivals=calls(0.013), resend=st.booleans())
    def agree(server, arrivals, resend) -> None:
        check(replace(server, step_time=Watched(server.step_time)), arrivals, resend, exact=False)

    agree()
