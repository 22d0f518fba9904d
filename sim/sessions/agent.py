"""An agent that acts out a plan under a context policy: what it sends, what it keeps, why it ends.

It knows no clock and no server: a driver asks it for the next request, serves that, and hands the answer back. So the
same agent runs against an idle server, a simulated replica, or a price list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from policies.context import ContextPolicy, Fitted, Refused, Shape
from policies.messages import History, Known, Message, ToolCall, assistant, system, tool_result, user
from sim.replica.prefix_cache import Prompt
from sim.sessions.transcript import Transcript
from workloads.agents.plan import Part, Plan, Step

REREAD_CALL = Part(Known(60), 60)
"""The tool call by which an agent reads a cleared result again. An assumption: a path and a line range."""

_CALL = (ToolCall("t"),)


class End(Enum):
    """Why a session ended."""

    FINISHED = "finished"
    REFUSED_BY_POLICY = "refused by the policy"
    REFUSED_BY_SERVER = "refused by the server"
    STOPPED = "stopped early"


@dataclass(slots=True)
class Ask:
    """A request that the agent makes.

    Attributes
    ----------
    prompt
        What is sent, in true tokens.
    output_tokens
        Tokens the model would write.
    fitted
        What the context policy made of the history.
    is_summary
        Whether it only writes the summary that the next request carries.
    rewritten_tokens
        Tokens sent before that stand behind a change and so are new to any prefix cache.
    """

    prompt: Prompt
    output_tokens: int
    fitted: Fitted
    is_summary: bool = False
    rewritten_tokens: int = 0


@dataclass(slots=True)
class Tally:
    """What happened in a session.

    Attributes
    ----------
    requests, summaries, rereads
        Requests in all, those that wrote summaries, those that asked for a cleared result again.
    prompt_tokens, output_tokens
        True tokens sent and received.
    estimated_tokens
        What the policy's estimator made of `prompt_tokens`.
    rewritten_tokens, reread_tokens
        Tokens sent again behind a change; tokens of results that were read again.
    cleared_tokens, dropped_tokens
        Estimated tokens that the request with the most of them left out.
    early_tokens
        True tokens that were cleared or left out at requests which the window would have held without that.
    stages
        Requests by the stage that the policy went to, 0 to 3.
    over_budget
        Requests whose estimate exceeded the policy's budget.
    largest_prompt, largest_estimate
        The largest request in true and in estimated tokens.
    """

    requests: int = 0
    summaries: int = 0
    rereads: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    estimated_tokens: int = 0
    rewritten_tokens: int = 0
    reread_tokens: int = 0
    cleared_tokens: int = 0
    dropped_tokens: int = 0
    early_tokens: int = 0
    stages: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    over_budget: int = 0
    largest_prompt: int = 0
    largest_estimate: int = 0


class Agent:
    """One session in progress.

    Parameters
    ----------
    plan
        What it is going to do.
    policy
        Decides what part of the history is sent.
    number
        Tells its messages from those of other sessions in a shared cache.
    window
        Tokens that the model reads at most; a longer request is refused by the server.
    room
        Tokens that an agent believes it may use which was not told that old results are cleared for it; None: it was
        told.

    Attributes
    ----------
    end
        Why it ended; None while it goes on.
    reason
        The refusal in words.
    tally
        What happened so far.
    """

    def __init__(
        self, plan: Plan, policy: ContextPolicy[Any], number: int, window: int, room: int | None = None
    ) -> None:
        self.plan = plan
        self.policy = policy
        self.window = window
        self.room = room
        self.tally = Tally()
        self.end: End | None = None
        self.reason = ""
        self.number = number
        self._steps = iter(plan.steps)
        self._step: Step = next(self._steps)
        self._needs = 0  # how many results back the coming answer looks
        self._again: Part | None = None  # the result that is being read again
        self._summarised: Shape | None = None
        self._epoch = 0
        self._begin(plan.first)

    def _begin(self, first: Part) -> None:
        """Start an empty conversation."""
        self._history = History((system(self.plan.head.content), user(first.content)))
        self._parts: list[Part] = [self.plan.head, first]
        self._results: list[int] = []
        self._transcript = Transcript((self.number, self._epoch))
        self._transcript.say(self.plan.head.tokens, self.plan.head_id)
        self._transcript.say(first.tokens)

    def ask(self) -> Ask | None:
        """Return the next request; None if the session has ended."""
        if self.end is not None:
            return None
        fitted = self.policy.fit(self._history)
        if isinstance(fitted, Refused):
            self.end, self.reason = End.REFUSED_BY_POLICY, fitted.reason
            return None
        transcript, rewritten = self._transcript, 0
        if fitted.summary is not None and self._summarised != fitted.shape:
            self._summarised = fitted.shape
            transcript.go_on()
            return self._count(Ask(transcript.prompt, fitted.summary.output_tokens, fitted, is_summary=True))
        if fitted.shape == transcript.shape:
            transcript.go_on()
        else:
            rewritten = self._change(fitted)
        self._again = self._missed(fitted) if self._needs else None
        output = REREAD_CALL.tokens if self._again else self._step.output_tokens
        return self._count(Ask(transcript.prompt, output, fitted, rewritten_tokens=rewritten))

    def _change(self, fitted: Fitted) -> int:
        """Send something else than before; return the tokens sent before that stand behind the change."""
        transcript = self._transcript
        unchanged = transcript.unchanged
        note = 0 if fitted.replacement is None else fitted.replacement.tokens(self.policy.counts)
        rewritten = transcript.change(fitted, note)
        if unchanged < self.window:
            self.tally.early_tokens += max(0, unchanged - transcript.prompt.tokens)
        return rewritten

    def _count(self, ask: Ask) -> Ask | None:
        tokens, fitted, tally = ask.prompt.tokens, ask.fitted, self.tally
        if self.room is not None and tokens > self.plan.patience * self.room:
            self.end = End.STOPPED
            return None
        tally.requests += 1
        tally.summaries += ask.is_summary
        tally.stages[fitted.stage] += 1
        tally.over_budget += fitted.over
        tally.rewritten_tokens += ask.rewritten_tokens
        if fitted.cleared_tokens > tally.cleared_tokens:
            tally.cleared_tokens = fitted.cleared_tokens
        if fitted.dropped_tokens > tally.dropped_tokens:
            tally.dropped_tokens = fitted.dropped_tokens
        if tokens > tally.largest_prompt:
            tally.largest_prompt = tokens
        if fitted.estimate > tally.largest_estimate:
            tally.largest_estimate = fitted.estimate
        if tokens >= self.window:
            self.end, self.reason = End.REFUSED_BY_SERVER, f"{tokens:,} tokens exceed the window of {self.window:,}"
            return None
        tally.prompt_tokens += tokens
        tally.estimated_tokens += fitted.estimate
        return ask

    def answered(self, ask: Ask, delivered: int | None = None) -> float:
        """Take the answer in; return the seconds until the next request.

        Parameters
        ----------
        ask
            The request that was answered.
        delivered
            Tokens that came, if fewer than the model would have written.
        """
        tally = self.tally
        tally.output_tokens += ask.output_tokens if delivered is None else delivered
        if ask.is_summary:
            return 0.0
        step = self._step
        if self._again is not None:
            part = self._again
            tally.rereads += 1
            tally.reread_tokens += part.tokens
            self._say(assistant(REREAD_CALL.content, *_CALL), REREAD_CALL)
            self._transcript.go_on()
            self._say(tool_result("t", part.content), part)
            self._again, self._needs = None, 0
            return step.wait_s
        answer, written = step.answer, step.output_tokens
        if delivered is not None and delivered < written:
            answer, written = Part(Known(delivered), delivered), delivered
        incoming = step.incoming
        if incoming is None:
            self.end = End.FINISHED
            return 0.0
        if step.fresh:
            self._epoch += 1
            self._begin(incoming)
        else:
            self._say(assistant(answer.content, *(() if step.user else _CALL)), answer)
            if answer.tokens == written:  # what was generated is what is sent next: servers that keep it find it
                self._transcript.go_on()
            if step.user:
                self._say(user(incoming.content), incoming)
            else:
                self._say(tool_result("t", incoming.content), incoming)
        self._needs = step.look_back
        self._step = next(self._steps)
        return step.wait_s

    def overtake(self, ask: Ask) -> float:
        """Go on although the answer is not there yet, as if it had come whole; return the seconds, as `answered`."""
        self._transcript.leave()
        return self.answered(ask)

    def refused(self, reason: str) -> None:
        """End the session: the server, or the output policy before it, refused the request."""
        self.end, self.reason = End.REFUSED_BY_SERVER, reason

    def _say(self, message: Message, part: Part) -> None:
        if message.answers is not None:
            self._results.append(len(self._parts))
        self._history = self._history.append(message)
        self._parts.append(part)
        self._transcript.say(part.tokens)

    def _missed(self, fitted: Fitted) -> Part | None:
        """Return the result that the coming answer needs and that is not in the request."""
        if not 0 < self._needs <= len(self._results):
            return None
        at = self._results[-self._needs]
        shape = fitted.shape
        gone = fitted.is_cleared(at) or shape.head <= at < shape.start
        return self._parts[at] if gone else None
