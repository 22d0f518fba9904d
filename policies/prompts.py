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

# Context policies.

CLEARED_RESULT = (
    "[This tool result was cleared to keep the conversation within what the model can read. Run the tool again if you "
    "need it.]"
)
"""Stands for a tool result that was cleared (document 001, step 1)."""

DROPPED_MESSAGES = (
    "[Earlier parts of this conversation were left out to keep it within what the model can read. The first message "
    "above and the most recent part below are complete.]"
)
"""Stands for messages that were left out (document 001, steps 2 and 3)."""

CONTEXT_INSTRUCTION = (
    "When this conversation grows beyond what the model can read, the oldest tool results are cleared for you and the "
    "newest stay whole. So do not stop in the middle of a long task to save room: go on, and read a file again if you "
    "need something that was cleared."
)
"""Part of the agent's instructions: a safety net that the model does not know of is none (document 001, problem 2)."""
