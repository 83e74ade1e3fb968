"""Notifications of a session for its users."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Severity = Literal["info", "warning", "error"]


class NotificationAction(BaseModel):
    """A button: ``payload`` comes back to the caller when it is pressed."""

    id: str
    label: str
    payload: dict[str, Any] = Field(default_factory=dict)


class NotificationPayload(BaseModel):
    """A message for the user."""

    severity: Severity = "info"
    title: str
    body: str
    actions: list[NotificationAction] = Field(default_factory=list)
