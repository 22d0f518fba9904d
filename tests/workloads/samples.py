"""One small made-up sample of every format, and what it says."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def servegen() -> bytes:
    """Return two windows of one client: prompts 10 or 20 alike, answers 5 (1/4) or 7 (3/4); 60 + 120 calls."""
    trace = "0,0.1,1.0,Gamma,1,1\n600,0.2,1.5,Weibull,1,1\n"
    histogram = {"input_tokens": "{10: 0.5, 20: 0.5}", "output_tokens": "{5: 0.25, 7: 0.75}"}
    files = {"chunk-3-trace.csv": trace, "chunk-3-dataset.json": json.dumps({"0": histogram})}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"reason/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def span(start: int, attributes: dict[str, Any], name: str) -> dict[str, Any]:
    packed = [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]
    return {
        "spanId": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 10**9),
        "attributes": packed,
    }


# name -> (bytes, seconds of the arrivals from the first, prompt tokens, output tokens)
SAMPLES: dict[str, tuple[bytes, list[float], list[int], list[int]]] = {
    "csv": (
        b"arrival_s,prompt_tokens,output_tokens,kind,session\n5,10,1,chat,a\n5.5,20,2,tool,b\n",
        [0.0, 0.5],
        [10, 20],
        [1, 2],
    ),
    "azure-2023": (
        b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        b"2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109",
        [0.0, 4.314579],
        [374, 396],
        [44, 109],
    ),
    "burstgpt": (
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        b"5,ChatGPT,472,18,490,Conversation log\n6,GPT-4,9,0,9,API log\n45,ChatGPT,1087,230,1317,Conversation log\n",
        [0.0, 40.0],
        [472, 1087],
        [18, 230],
    ),
    "lengths": (
        b"num_prefill_tokens,num_decode_tokens,pd_ratio\n74,918,0.08\n290,905,0.3\n",
        [0, 0],
        [74, 290],
        [918, 905],
    ),
    "histogram": (b"tokens,probability\n4,0.25\n8,0.75\n", [0, 0], [0, 0], [4, 8]),
    "servegen": (servegen(), [0, 0, 0], [10, 10, 20], [5, 7, 7]),
    "mooncake": (
        lines(
            {"timestamp": 3000, "input_length": 600, "output_length": 7, "hash_ids": [0, 1]},
            {"timestamp": 6000, "input_length": 1024, "output_length": 9, "hash_ids": [0, 2]},
        ),
        [0.0, 3.0],
        [600, 1024],
        [7, 9],
    ),
    "qwen-bailian": (
        lines(
            {
                "chat_id": 1,
                "parent_chat_id": -1,
                "timestamp": 1.5,
                "input_length": 20,
                "output_length": 3,
                "type": "text",
                "turn": 1,
                "hash_ids": [7, 8],
            },
            {
                "chat_id": 2,
                "parent_chat_id": 1,
                "timestamp": 4.0,
                "input_length": 40,
                "output_length": 5,
                "type": "text",
                "turn": 2,
                "hash_ids": [7, 8, 9],
            },
        ),
        [0.0, 2.5],
        [20, 40],
        [3, 5],
    ),
    "weka": (
        lines(
            {
                "id": "t1",
                "block_size": 64,
                "tool_tokens": 50,
                "system_tokens": 20,
                "requests": [
                    {"t": 0.0, "in": 130, "out": 5, "input_types": ["text"], "stop": "tool_use", "runs": [[1, 2]]},
                    {
                        "t": 2.0,
                        "type": "subagent",
                        "subagent_type": "Explore",
                        "requests": [{"t": 0.0, "in": 64, "out": 9, "input_types": ["text"], "runs": [[9, 1]]}],
                    },
                    {
                        "t": 9.0,
                        "in": 200,
                        "out": 6,
                        "input_types": ["tool_result"],
                        "stop": "end_turn",
                        "think_time": 3.0,
                        "api_time": 1.0,
                        "runs": [[1, 1], [4, 2]],
                    },
                ],
            }
        ),
        [0, 0, 0],
        [130, 200, 64],
        [5, 6, 9],
    ),
    "server-bench": (
        lines(
            {"request_id": "b", "input_toks": 30, "output_toks": 4, "queued_ts": 101.5, "last_token_ts": 103.0},
            {"request_id": "a", "input_toks": 20, "output_toks": 3, "queued_ts": 100.0, "last_token_ts": 102.0},
        ),
        [0.0, 1.5],
        [20, 30],
        [3, 4],
    ),
    "tracelab": (
        lines(
            {
                "session_id": "s",
                "round_id": "m1",
                "input_tokens_total": 300,
                "prefix_tokens": 200,
                "output_tokens": 40,
                "reasoning_output_tokens": None,
                "timing_events": [{"event_type": "user_message", "timestamp": "2026-06-01T05:40:20.151Z"}],
            }
        ),
        [0.0],
        [300],
        [40],
    ),
    "aiperf": (
        lines(
            {
                "metadata": {"request_start_ns": 1_760_000_000_000_000_000, "x_request_id": "q1"},
                "metrics": {"input_sequence_length": {"value": 12}, "output_sequence_length": {"value": 8}},
            },
            {"metadata": {"request_start_ns": 1_760_000_001_000_000_000}, "metrics": {}, "error": {"code": 500}},
        ),
        [0.0],
        [12],
        [8],
    ),
    "vllm-bench": (
        json.dumps({"input_lens": [5, 6], "output_lens": [7, 8], "start_times": [10.0, 12.0]}, indent=1).encode(),
        [0.0, 2.0],
        [5, 6],
        [7, 8],
    ),
    "guidellm": (
        json.dumps(
            {
                "benchmarks": [
                    {
                        "requests": {
                            "successful": [
                                {"start_time": 1.76e9, "end_time": 1.76e9 + 2, "prompt_tokens": 9, "output_tokens": 3}
                            ]
                        }
                    }
                ]
            },
            indent=2,
        ).encode(),
        [0.0],
        [9],
        [3],
    ),
    "otel": (
        lines(
            {
                "resourceSpans": [
                    {
                        "scopeSpans": [
                            {
                                "spans": [
                                    span(
                                        2 * 10**18,
                                        {"gen_ai.usage.input_tokens": 50, "gen_ai.usage.output_tokens": 6},
                                        "b",
                                    ),
                                    span(10**18, {"http.method": "GET"}, "x"),
                                    span(
                                        2 * 10**18 - 5 * 10**8,
                                        {"gen_ai.usage.prompt_tokens": 40, "gen_ai.usage.completion_tokens": 5},
                                        "a",
                                    ),
                                ]
                            }
                        ]
                    }
                ]
            }
        ),
        [0.0, 0.5],
        [40, 50],
        [5, 6],
    ),
    "otel-flat": (
        lines(
            {
                "name": "chat",
                "start_time": "2026-01-01T00:00:00Z",
                "end_time": "2026-01-01T00:00:02Z",
                "attributes": {
                    "gen_ai.usage.input_tokens": 5,
                    "gen_ai.usage.output_tokens": 2,
                    "gen_ai.response.finish_reasons": ["length"],
                },
            }
        ),
        [0.0],
        [5],
        [2],
    ),
    "usage": (
        lines(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1_760_000_000,
                "choices": [{"finish_reason": "length", "message": {"content": "secret"}}],
                "usage": {
                    "prompt_tokens": 100,
                    "completion_tokens": 20,
                    "prompt_tokens_details": {"cached_tokens": 64},
                    "completion_tokens_details": {"reasoning_tokens": 8},
                },
            },
            {
                "timestamp": "2025-10-09T10:53:25+02:00",
                "session_id": "s1",
                "response": {
                    "id": "msg_1",
                    "type": "message",
                    "stop_reason": "max_tokens",
                    "usage": {
                        "input_tokens": 3,
                        "cache_read_input_tokens": 40,
                        "cache_creation_input_tokens": 7,
                        "output_tokens": 30,
                    },
                },
            },
            {
                "id": "resp_1",
                "object": "response",
                "created_at": 1_760_000_007,
                "status": "completed",
                "incomplete_details": None,
                "usage": {
                    "input_tokens": 9,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": 4,
                    "output_tokens_details": {"reasoning_tokens": 0},
                },
            },
        ),
        [0.0, 5.0, 7.0],
        [100, 50, 9],
        [20, 30, 4],
    ),
    "claude-code": (
        lines(
            {"type": "summary", "summary": "secret", "leafUuid": "x"},
            {
                "type": "user",
                "sessionId": "s",
                "isSidechain": False,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "message": {"role": "user", "content": "secret question"},
            },
            *(
                {
                    "type": "assistant",
                    "sessionId": "s",
                    "isSidechain": False,
                    "timestamp": f"2026-01-01T00:00:0{second}.000Z",
                    "requestId": "r1",
                    "message": {
                        "id": "m1",
                        "stop_reason": "tool_use",
                        "usage": {
                            "input_tokens": 4,
                            "cache_read_input_tokens": 10,
                            "cache_creation_input_tokens": 6,
                            "output_tokens": output,
                        },
                        "content": [{"type": "text", "text": "secret"}],
                    },
                }
                for second, output in ((2, 1), (4, 33))
            ),
            {
                "type": "user",
                "sessionId": "s",
                "isSidechain": False,
                "timestamp": "2026-01-01T00:00:07.000Z",
                "message": {"role": "user", "content": [{"type": "tool_result", "content": "x" * 500}]},
            },
            {
                "type": "assistant",
                "sessionId": "s",
                "isSidechain": False,
                "timestamp": "2026-01-01T00:00:09.000Z",
                "message": {
                    "id": "m2",
                    "stop_reason": "max_tokens",
                    "usage": {"input_tokens": 60, "output_tokens": 12},
                },
            },
        ),
        [0.0, 7.0],
        [20, 60],
        [33, 12],
    ),
    "qwen-code": (
        lines(
            {"uuid": "u1", "parentUuid": None, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "type": "user"},
            {
                "uuid": "u2",
                "parentUuid": "u1",
                "sessionId": "s",
                "timestamp": "2026-01-01T00:00:03Z",
                "type": "assistant",
                "usageMetadata": {"promptTokenCount": 70, "candidatesTokenCount": 11, "cachedContentTokenCount": 64},
            },
        ),
        [0.0],
        [70],
        [11],
    ),
}
