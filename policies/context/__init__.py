"""Context policies: what part of a long conversation is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from policies.context.arms import (
    ClearToolUses,
    DropHalf,
    LangChainClearToolUses,
    LastObservations,
    MaskToolOutputs,
    PruneOldTurns,
    SendAll,
    Summarise,
    SummariseAll,
)
from policies.context.base import ESTIMATORS, BadConstants, ContextPolicy
from policies.context.document import ClearOne, CutUserTurns, Document001, KeepSix
from policies.context.fitted import Fitted, Refused, Shape, Summary

__all__ = [
    "CONTEXT_POLICIES",
    "ESTIMATORS",
    "BadConstants",
    "ClearOne",
    "ClearToolUses",
    "ContextPolicy",
    "CutUserTurns",
    "Document001",
    "DropHalf",
    "Fitted",
    "KeepSix",
    "LangChainClearToolUses",
    "LastObservations",
    "MaskToolOutputs",
    "PruneOldTurns",
    "Refused",
    "SendAll",
    "Shape",
    "Summarise",
    "SummariseAll",
    "Summary",
]


CONTEXT_POLICIES: Final[Mapping[str, type[ContextPolicy[Any]]]] = {
    "document-001": Document001,
    "none": SendAll,
    "cut-user-turns": CutUserTurns,
    "keep-six": KeepSix,
    "clear-one": ClearOne,
    "clear-tool-uses": ClearToolUses,
    "langchain-clear-tool-uses": LangChainClearToolUses,
    "gemini-mask": MaskToolOutputs,
    "opencode-prune": PruneOldTurns,
    "last-observations": LastObservations,
    "cline-half": DropHalf,
    "qwen-compress": Summarise,
    "codex-compact": SummariseAll,
}
"""The policies by the names that studies use; their fields are the constants a study may set."""
