"""The catalogue against published figures, capacity against its formula, and bad tables."""

from __future__ import annotations

import json

import pytest

from sim.hardware import GPUS, MODELS, find_gpu, find_model, kv_capacity_tokens, read_config
from workloads.errors import BadInput

# name: billions of parameters in all and active, KV bytes a token in bf16; as the models' cards say
PUBLISHED = {
    "llama-3.1-8b": (8.03, 8.03, 131_072),
    "llama-3.1-70b": (70.6, 70.6, 327_680),
    "qwen3-8b": (8.2, 8.2, 147_456),
    "qwen3-32b": (32.8, 32.8, 262_144),
    "qwen3-30b-a3b": (30.5, 3.35, 98_304),
    "qwen3-235b-a22b": (235.0, 22.2, 192_512),
    "qwen3-coder-480b": (480.0, 35.5, 253_952),
    "deepseek-v3": (671.0, 37.0, 70_272),
    "kimi-k2": (1_040.0, 32.0, 70_272),
    "qwen3.5-27b": (27.0, 27.0, 65_536),
    "opt-13b": (12.85, 12.85, 819_200),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_kv_bytes_follow_from_the_shape(name):
    total, active, kv = PUBLISHED[name]
    model = MODELS[name]
    assert model.total_parameters == pytest.approx(total * 1e9, rel=0.015)
    assert model.active_parameters == pytest.approx(active * 1e9, rel=0.03)
    assert model.kv_bytes_per_token() == kv


@pytest.mark.parametrize(
    ("gpu", "model", "gpus", "weights", "tokens"),
    [
        ("h100", "llama-3.1-8b", 1, None, 417_000),
        ("h100", "qwen3-32b", 2, None, 312_000),
        ("h200", "qwen3-32b", 1, None, 209_000),
        ("h100", "llama-3.1-70b", 4, None, 487_000),
        ("h200", "qwen3-235b-a22b", 4, "fp8", 1_370_000),
        ("h200", "deepseek-v3", 8, "fp8", 4_740_000 / 8),  # the latent lies on every GPU
    ],
)
def test_capacity_at_90_percent_of_the_memory(gpu, model, gpus, weights, tokens):
    found = kv_capacity_tokens(GPUS[gpu], MODELS[model], gpus, utilisation=0.9, weights=weights)
    assert found == pytest.approx(tokens, rel=0.02)


def test_keys_and_values_are_shared_by_heads_and_no_further():
    model = MODELS["qwen3-30b-a3b"]  # 4 KV heads
    assert [model.kv_bytes_per_token(tensor_parallel=n) for n in (1, 2, 4, 8)] == [98_304, 49_152, 24_576, 24_576]
    assert model.kv_bytes_per_token("fp8") == 98_304 / 2


def test_experts_touched_grows_from_one_tokens_share_to_all():
    model = MODELS["qwen3-30b-a3b"]
    shares = [model.experts_touched(n) for n in (1, 2, 16, 4_096)]
    assert shares[0] == pytest.approx(8 / 128)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_a_model_that_does_not_fit_is_refused_with_the_arithmetic():
    with pytest.raises(BadInput, match=r"llama-3.1-70b leaves no room .* 1 x h100: needs 137.1 of 73.6 GiB a GPU"):
        kv_capacity_tokens(GPUS["h100"], MODELS["llama-3.1-70b"])


@pytest.mark.parametrize("name", ["H100", "h100_sxm", "NVIDIA H100 80GB HBM3"])
def test_gpus_are_found_under_their_aliases(name):
    assert find_gpu(name) is GPUS["h100"]


def test_models_are_found_under_their_ids():
    assert find_model("meta-llama/Llama-3.1-8B") is MODELS["llama-3.1-8b"]


def test_unknown_names_say_what_is_known():
    with pytest.raises(BadInput, match=r"server.gpu: unknown GPU 'h10O': one of a100, h100, .*did you mean 'h100'"):
        find_gpu("h10O")
    with pytest.raises(BadInput, match=r"server.model: unknown model 'qwen3-33b'.*did you mean 'qwen3-32b'"):
        find_model("qwen3-33b")


TABLE = {
    "name": "mine",
    "layers": 4,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "ffn": 256,
    "vocabulary": 100,
    "window": 512,
}


def test_a_table_describes_a_model():
    model = find_model(TABLE)
    assert (model.name, model.source, model.kv_bytes_per_token()) == ("mine", "table", 2 * 4 * 2 * 16 * 2)


def test_all_faults_of_a_table_come_at_once():
    with pytest.raises(BadInput) as caught:
        find_model({"layers": -1, "hiden": 64, "heads": 2.5, "tied": "yes", "window": 8}, file="study.toml")
    lines = [str(fault) for fault in caught.value.faults]
    assert "study.toml: server.model.layers: is -1: a whole number >= 1" in lines
    assert any("server.model.hiden: unknown key" in line and "did you mean 'hidden'" in line for line in lines)
    assert "study.toml: server.model.heads: is 2.5: a whole number >= 1" in lines
    assert "study.toml: server.model.tied: is 'yes': true or false" in lines
    assert "study.toml: server.model.vocabulary: is missing" in lines
    with pytest.raises(BadInput, match="heads = 4 is no multiple of kv_heads = 3"):
        find_model(TABLE | {"kv_heads": 3})
    with pytest.raises(BadInput, match="experts_per_token = 9: 1 to experts = 8"):
        find_model(TABLE | {"experts": 8, "experts_per_token": 9, "expert_ffn": 8})
    with pytest.raises(BadInput, match="a table of FLOP/s by number type"):
        find_gpu({"flops": {"fp8": 1e12}, "memory": 1e9, "memory_bandwidth": 1e9, "link_bandwidth": 1e9})


CONFIGS = {
    "llama-3.1-8b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14_336,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "intermediate_size": 6144,
        "vocab_size": 151_936,
        "max_position_embeddings": 262_144,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 61,
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "intermediate_size": 18_432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "vocab_size": 129_280,
        "max_position_embeddings": 163_840,
        "quantization_config": {"quant_method": "fp8"},
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_on_disk_gives_the_catalogues_model(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    model = find_model({"path": str(tmp_path / "config.json")})
    known = MODELS[name]
    assert model.total_parameters == known.total_parameters
    assert model.active_parameters == known.active_parameters
    assert model.kv_bytes_per_token() == known.kv_bytes_per_token()
    assert (model.window, model.weights) == (known.window, known.weights)


def test_fields_beside_a_config_override_it(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama-3.1-8b"]))
    model = find_model({"path": str(tmp_path / "config.json"), "window": 8_192, "name": "short"})
    assert (model.window, model.name, model.layers) == (8_192, "short", 32)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"config.json:1: is no JSON"),
        ("[1]", r"config.json: is no JSON object"),
        ("{}", r"config.json: num_hidden_layers: is missing\n(.*\n)*.*vocab_size: is missing"),
        ('{"num_hidden_layers": "8"}', r"num_hidden_layers: is '8': a whole number"),
    ],
)
def test_a_config_that_cannot_be_used_says_why(text, message, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_config(tmp_path / "config.json")


def test_a_missing_config_is_one_line(tmp_path):
    with pytest.raises(BadInput, match=r"config.json: cannot be read: No such file"):
        find_model({"path": str(tmp_path / "config.json")})
