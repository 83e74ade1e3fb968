"""Determines which controls need a confirmation."""

from __future__ import annotations

from dataclasses import dataclass

from keelbolt.state.types.steering import SteeringEvent, SteeringEventType

DESTRUCTIVE = frozenset({SteeringEventType.CANCEL, SteeringEventType.REDIRECT})


@dataclass(slots=True)
class ControlPolicy:
    """A destructive control that does not come from a user waits for approval."""

    require_confirmation: bool = True
    destructive_events: frozenset[SteeringEventType] | set[SteeringEventType] = DESTRUCTIVE

    def requires_confirmation(self, event: SteeringEvent) -> bool:
        """Return whether this control needs a confirmation."""
        if not self.require_confirmation or event.event_type not in self.destructive_events:
            return False
        return event.source != "user" and not event.payload.get("confirmed")
