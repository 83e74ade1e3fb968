"""Who may do what at once, and what somebody has to confirm first."""

from __future__ import annotations

from dataclasses import dataclass

from keelbolt.state.types.steering import SteeringEvent, SteeringEventType

DESTRUCTIVE = frozenset({SteeringEventType.CANCEL, SteeringEventType.REDIRECT})


@dataclass(slots=True)
class ControlPolicy:
    """Agents propose, people confirm: a destructive demand that no user made waits for an approval."""

    require_confirmation: bool = True
    destructive_events: frozenset[SteeringEventType] | set[SteeringEventType] = DESTRUCTIVE

    def requires_confirmation(self, event: SteeringEvent) -> bool:
        """Whether this demand has to wait."""
        if not self.require_confirmation or event.event_type not in self.destructive_events:
            return False
        return event.source != "user" and not event.payload.get("confirmed")
