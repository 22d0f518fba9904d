"""When a request is sent again, and how long is waited."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import error_kind
from policies.output import ErrorKind, Retries
from policies.profiles import PROFILES
from policies.retry import Backoff, Retry

NEVER = {ErrorKind.INVALID, ErrorKind.TOO_LONG, ErrorKind.NO_ROOM}


@given(st.lists(st.sampled_from(ErrorKind), max_size=60), st.sampled_from(Retries), st.integers())
def test_each_sort_of_error_has_its_own_bound(errors: list[ErrorKind], allowed: Retries, seed: int) -> None:
    retry = Retry()
    machine = retry.begin(allowed, seed)
    waits = [(error, machine.after(error)) for error in errors]
    assert all(wait is None for error, wait in waits if error in NEVER or allowed is Retries.NONE)
    refused = [
        wait for error, wait in waits if error in (ErrorKind.RATE_LIMITED, ErrorKind.SERVER) and wait is not None
    ]
    broken = [wait for error, wait in waits if error in (ErrorKind.CUT, ErrorKind.EMPTY) and wait is not None]
    assert len(refused) <= retry.refused.retries
    assert len(broken) <= (retry.broken.retries if allowed is Retries.ALL else 0)
    for n, wait in enumerate(refused):
        even = min(30.0, 1.5 * 2**n)
        assert 0.7 * even <= wait <= 1.3 * even
    assert broken == [2.0, 4.0][: len(broken)]
    again = retry.begin(allowed, seed)
    assert [again.after(error) for error in errors] == [wait for _, wait in waits]


def test_seeds_differ() -> None:
    waits = {Retry().begin(Retries.ALL, seed).after(ErrorKind.SERVER) for seed in range(20)}
    assert len(waits) == 20


def test_the_servers_wish_is_the_least() -> None:
    machine = Retry(refused=Backoff(retries=1, first_s=1.0)).begin(Retries.ALL)
    assert machine.after(ErrorKind.RATE_LIMITED, retry_after_s=9.0) == 9.0
    assert machine.after(ErrorKind.RATE_LIMITED, retry_after_s=9.0) is None


def test_the_client_of_the_documents_sends_28_requests() -> None:
    machine = PROFILES["qwen-code-0.15"].retry.begin(Retries.REFUSED)
    waits = [machine.after(ErrorKind.SERVER) for _ in range(28)]
    assert waits[27] is None
    assert None not in waits[:27]


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (429, "", ErrorKind.RATE_LIMITED),
        (500, "context length", ErrorKind.SERVER),
        (529, "Overloaded", ErrorKind.SERVER),
        (408, "", ErrorKind.SERVER),
        (400, "This model's maximum context length is 32768 tokens. However, you requested", ErrorKind.TOO_LONG),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", ErrorKind.TOO_LONG),
        (400, "the request exceeds the available context size", ErrorKind.TOO_LONG),
        (413, "", ErrorKind.TOO_LONG),
        (400, "messages: text content blocks must be non-empty", ErrorKind.INVALID),
        (401, "bad key", ErrorKind.INVALID),
        (404, "", ErrorKind.INVALID),
    ],
)
def test_errors(status: int, message: str, kind: ErrorKind) -> None:
    assert error_kind(status, message) is kind
