"""Texts that policies show to a model or a person. What each must say is from the design documents."""

from __future__ import annotations

RECOVERY = (
    "Your answer was cut off by the output limit. Continue exactly where it stopped: no apology, no summary, no "
    "repetition of what is already written. Break the rest of the work into smaller pieces."
)
"""Injected as a user message before a continuation (documents 000 and 002, recovery steps 2)."""

SPLIT_WORK = (
    "This tool call was not run: the answer that held it was cut off by the output limit, so its arguments are not to "
    "be trusted. You MUST split the work into smaller parts: write a skeleton first, then add to it with one edit at a "
    "time, each well below the limit."
)
"""Answers a tool call that a truncated response holds (documents 000 and 002, layer 3)."""

TOO_LONG = (
    "This conversation has become too long for the model to read at once. Start a new chat for the next step: "
    "everything built so far is kept."
)
"""Shown to the person whose conversation no longer fits the model (document 001, "refusals now say why")."""
