"""The state diagram of a call, drawn from the transition table: ``python -m policies.output.diagram`` prints it."""

from __future__ import annotations

from policies.output.machine import MOVES, State


def draw() -> str:
    """Return the transition table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.READY.name}"]
    for state, moves in MOVES.items():
        lines += [f"    {state.name} --> {target.name}: {event.value}" for event, target in moves.items()]
        if not moves:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join(lines)


if __name__ == "__main__":
    print(draw())
