"""Field validation: each check returns the value to store, or raises the error of the class being created."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar, get_args

from keelbolt.errors import InvalidInitialValue, TokenizableEvaluatorInvalid
from keelbolt.turns.primitives.frozen import FrozenDict, FrozenList, frozen
from keelbolt.turns.primitives.text import Tokenizable

Moment = datetime | str | int | float
"""A time as it is given: a datetime with a zone, ISO 8601 text with a zone, or milliseconds since 1970."""

TrustTier = Literal["first-party", "third-party-public", "third-party-private"]
ModalityHazard = Literal["inert", "extractable-instructions", "opaque-perceptual"]
TRUST_TIERS: tuple[TrustTier, ...] = get_args(TrustTier)
MODALITY_HAZARDS: tuple[ModalityHazard, ...] = get_args(ModalityHazard)

T = TypeVar("T")
_set_field = object.__setattr__


class Wrong(Exception):
    """A field is invalid; `refusing` converts it to the error of its class."""


def refusing(error: type[InvalidInitialValue]) -> Callable[[type[T]], type[T]]:
    """Make a class's constructor raise this error for invalid, missing and unknown fields."""

    def decorate(kind: type[T]) -> type[T]:
        init: Callable[..., None] = kind.__init__

        @functools.wraps(init)
        def checked(self: Any, *args: Any, **fields: Any) -> None:
            try:
                init(self, *args, **fields)
            except Wrong as wrong:
                raise error(f"{kind.__name__}: {wrong}", cause=wrong.__cause__) from wrong.__cause__
            except TypeError as mismatch:
                try:
                    inspect.signature(init).bind(self, *args, **fields)
                except TypeError as unfit:
                    raise error(f"{kind.__name__}: {_explain(unfit, init)}") from mismatch
                raise

        kind.__init__ = checked  # type: ignore[method-assign]
        return kind

    return decorate


def _explain(unfit: TypeError, init: Callable[..., None]) -> str:
    fields = [name for name in inspect.signature(init).parameters if name != "self"]
    return f"{unfit}; its fields are {', '.join(fields)}, given by name"


def keep(primitive: object, **fields: object) -> None:
    """Set the fields of a frozen dataclass; for its constructor only."""
    for name, value in fields.items():
        _set_field(primitive, name, value)


def text(name: str, value: object) -> str:
    """Return a non-empty str."""
    if not isinstance(value, str):
        raise Wrong(f"{name} is a str, not {type(value).__name__}")
    if not value:
        raise Wrong(f"{name} is empty")
    return str(value)


def optional_text(name: str, value: object) -> str | None:
    return None if value is None else text(name, value)


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> Any:
    """Return one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        shown = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
        raise Wrong(f"{name} is one of {', '.join(allowed)}, not {shown}")
    return str(value)


def share(name: str, value: object) -> float:
    """Return a number from 0 to 1, both inclusive."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not 0 <= value <= 1:
        raise Wrong(f"{name} is a number from 0 to 1, not {value!r}")
    return value


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"{name} is True or False, not {value!r}")
    return value


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(value: object) -> datetime:
    """Return the time as an aware datetime. Raise ValueError with the reason if it is invalid."""
    if isinstance(value, datetime):
        found = value
    elif isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value[:40]!r} is not a time; write it as 2026-01-31T12:00:00Z") from None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _EPOCH + timedelta(milliseconds=value)
        except (OverflowError, ValueError):
            raise ValueError(f"{value} milliseconds since 1970 is not a time that can be kept") from None
    else:
        raise ValueError(f"a time is a datetime, ISO 8601 text or milliseconds since 1970, not {type(value).__name__}")  # noqa: TRY004
    if found.utcoffset() is None:
        raise ValueError(f"{found.isoformat()} has no time zone; use datetime.now(UTC), or add Z or an offset")
    return found


def time(name: str, value: object) -> datetime:
    try:
        return moment(value)
    except ValueError as wrong:
        raise Wrong(f"{name}: {wrong}") from None


def times(created: object, updated: object) -> dict[str, datetime]:
    """Return both times of a primitive; the defaults are now, and the creation time."""
    began = datetime.now(UTC) if created is None else time("created_at", created)
    return {"created_at": began, "updated_at": began if updated is None else time("updated_at", updated)}


def words(name: str, value: object, *, empty: bool = False) -> Tokenizable:
    """Return text as a frozen Tokenizable; a given Tokenizable is copied, since its owner may change it."""
    try:
        found = value.frozen() if isinstance(value, Tokenizable) else Tokenizable.frozen_text(value)  # type: ignore[arg-type]
    except TokenizableEvaluatorInvalid:
        raise Wrong(f"{name} is a str or a Tokenizable, not {type(value).__name__}") from None
    if not found and not empty:
        raise Wrong(f"{name} is empty")
    return found


def replay(payload: object, compatibility: object) -> str | None:
    """Return the provider or model that can replay an opaque payload; a payload requires it."""
    found = optional_text("replay_compatibility", compatibility)
    if payload is not None and found is None:
        raise Wrong("a payload needs replay_compatibility, which names who can replay it")
    return found


def opaque(payload: T) -> T:
    """Return a copy of a provider-specific payload, with immutable dicts and lists."""
    if payload is None:
        return payload
    try:
        kept: T = frozen(payload)
    except Exception as uncopied:
        raise Wrong(f"payload can't be copied ({uncopied}); give it as plain data") from uncopied
    return kept


def plain(name: str, value: object) -> Any:
    """Return an immutable copy of a JSON value."""
    if value is None or isinstance(value, (str, int)):  # a tuple: a union would be built at every call
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Wrong(f"{name} is {value}, which JSON can't say")
        return value
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Wrong(f"{name} has the key {key!r}; keys of JSON are strings")
        return FrozenDict({key: plain(f"{name}.{key}", item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return FrozenList([plain(f"{name}[{index}]", item) for index, item in enumerate(value)])
    raise Wrong(f"{name} is {type(value).__name__}, which is not JSON")
