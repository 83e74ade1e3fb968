"""The author of a message or thought."""

from __future__ import annotations

from dataclasses import dataclass

from keelbolt.errors import InvalidInitialIdentityValue
from keelbolt.turns.primitives.checks import Wrong, keep, refusing, text, words
from keelbolt.turns.primitives.text import Tokenizable


@refusing(InvalidInitialIdentityValue)
@dataclass(frozen=True, slots=True, eq=False, init=False)
class Identity:
    """``identifier`` is your own and never shown to a model; ``representation`` is the text for the model."""

    identifier: str | int
    representation: Tokenizable

    def __init__(self, *, identifier: str | int, representation: str | Tokenizable) -> None:
        if isinstance(identifier, bool) or not isinstance(identifier, str | int):
            raise Wrong(f"identifier is a str or an int, not {type(identifier).__name__}")
        known = text("identifier", identifier) if isinstance(identifier, str) else identifier
        keep(self, identifier=known, representation=words("representation", representation))

    @classmethod
    def of(cls, value: str | Identity) -> Identity:
        """Return the value itself, or an Identity with a plain str as both identifier and representation."""
        return value if isinstance(value, Identity) else cls(identifier=value, representation=value)


def author(value: object) -> Identity:
    """Return the validated Identity of a message or thought; the usual ones are shared, since they are frozen."""
    if not isinstance(value, str | Identity) or value == "":
        raise Wrong(f"identity is an Identity or a non-empty str, not {value!r}")
    return _USUAL.get(value) or Identity.of(value)


_USUAL: dict[object, Identity] = {name: Identity.of(name) for name in ("user", "assistant")}
