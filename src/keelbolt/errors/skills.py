"""What is wrong with the call of a skill, before a task exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keelbolt.errors.protocol import FieldViolation, InvalidParamsError, ProtocolError

MAX_NAME_CHARACTERS = 200


class SkillNotFoundError(ProtocolError):
    """Skill not found: there is no such skill."""

    def __init__(self, skill_id: str | None = None) -> None:
        self.data = {"type": "ModuleNotFoundError"}
        super().__init__(None if skill_id is None else f"Skill not found: {_plain(skill_id)}")


class SkillRequiredError(InvalidParamsError):
    """Missing required parameter: metadata.skillId"""

    def __init__(self, message: str | None = None) -> None:
        self.data = {"type": "InvalidInputError"}
        super().__init__(message)


class SkillInputError(InvalidParamsError):
    """Invalid params: the message does not hold an input that this skill takes."""

    def __init__(
        self,
        message: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        *,
        kind: str = "InvalidInputError",
    ) -> None:
        self.data: dict[str, Any] = {"type": kind}
        if errors:
            self.data["errors"] = [dict(error) for error in errors]
        super().__init__(message, [FieldViolation(error["path"], error["message"]) for error in errors])


def _plain(name: str) -> str:
    """A name from a client, shortened and safe to repeat."""
    return "".join(character if character.isprintable() else "?" for character in name[:MAX_NAME_CHARACTERS])
