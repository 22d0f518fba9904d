"""Output policies over real APIs: an async driver, and transports on the official client libraries.

The driver runs the same machine that the simulator runs. The transports need the extras ``openai`` and ``anthropic``;
nothing else here needs more than the standard library.
"""

from policies.drive.driver import Driver
from policies.drive.events import Answered, Called, Cited, Ended, Event, Retried, Said
from policies.drive.transport import (
    CallDelta,
    CitationDelta,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    Transport,
    TransportError,
    Usage,
)
from policies.drive.turn import Turn

__all__ = [
    "Answered",
    "CallDelta",
    "Called",
    "CitationDelta",
    "Cited",
    "Delta",
    "Driver",
    "Ended",
    "Event",
    "Finish",
    "ReasoningDelta",
    "Retried",
    "Said",
    "TextDelta",
    "Transport",
    "TransportError",
    "Turn",
    "Usage",
]
