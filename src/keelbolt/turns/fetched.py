"""Validates the results of fetch callbacks, so that an error is reported at its source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keelbolt.errors import InvalidInitialValue
from keelbolt.turns.codec.kinds import PLURALS, TYPES
from keelbolt.turns.primitives import Tokenizable

_TYPES: dict[str, tuple[type, ...]] = {f"fetch_{PLURALS[kind]}_callback": (type_,) for kind, type_ in TYPES.items()}
_TYPES["refresh_standing_instructions_callback"] = (str, Tokenizable)


def fetched(callback: str, found: Any) -> Sequence[Any]:
    """Return the fetched values; raise InvalidInitialValue if they are not a list of the callback's type."""
    if found is None:
        raise InvalidInitialValue(f"{callback} returned None; return a list, empty if there are no values")
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise InvalidInitialValue(f"{callback} returned {type(found).__name__}; return a list")
    values = found if isinstance(found, Sequence) else list(found)
    wanted = _TYPES.get(callback)
    for value in values if wanted is not None else ():
        if not isinstance(value, wanted or object):
            name = " or ".join(type_.__name__ for type_ in wanted or ())
            make = f"; make them with {name}(**row)" if isinstance(value, Mapping) else ""
            raise InvalidInitialValue(f"{callback} returned a list with {type(value).__name__}, not {name}{make}")
    return values
