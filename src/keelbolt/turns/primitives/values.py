"""The values of primitives: checks of fields, text for models with token counts, and immutable plain data.

Each check returns the value to store, or raises the error of the class being created.

Plain data is immutable, so that a primitive can't differ from its stored version. `FrozenDict` and `FrozenList` are a
dict and a list to every reader (``json``, pydantic, ``==``). Copies of them, by ``copy``, ``deepcopy`` or ``pickle``,
are a plain, mutable dict and list.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Sized
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn, TypeVar, get_args

from keelbolt.errors import InvalidInitialValue, TokenizableEvaluatorInvalid

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


# ----------------------------------------------------------------------------------------------------------------- text


Encoder = Callable[[str], "int | Sized"]  # returns the tokens, or their number
_encoders: dict[str, Encoder] = {}


def register_encoding(name: str, encoder: Encoder) -> None:
    """Make `estimate_tokens(name)` use this encoder; for tiktoken, `tiktoken.get_encoding(name).encode`."""
    _encoders[name] = encoder


def count_tokens(text: str, encoding: str | Encoder | None = None) -> int:
    """Return the number of tokens; a quarter of the length if the encoder fails or is not registered."""
    encoder = _encoders.get(encoding) if isinstance(encoding, str) else encoding
    if encoder is not None:
        try:
            tokens = encoder(text)
            return tokens if isinstance(tokens, int) else len(tokens)
        except Exception:  # noqa: BLE001, S110 - an estimate must not end a turn
            pass
    return -(-len(text) // 4)


class Tokenizable:
    """Mutable text that caches its token counts until it is changed. The text of a primitive is frozen.

    ``key`` names a standing instruction, so that a changed text replaces it; without one its text identifies it.
    """

    __slots__ = ("_counts", "_frozen", "_key", "_text")

    def __init__(self, text: str, *, key: str | None = None) -> None:
        if key is not None and (not isinstance(key, str) or not key):
            raise TokenizableEvaluatorInvalid("the key of a Tokenizable is a non-empty str, or None")
        self._key = key
        self._frozen = False
        self.set(text)

    @classmethod
    def of(cls, value: str | Tokenizable) -> Tokenizable:
        """Return the value itself, or a str as a Tokenizable."""
        return value if isinstance(value, Tokenizable) else cls(value)

    @property
    def key(self) -> str | None:
        return self._key

    def set(self, text: str) -> None:
        """Set another text and clear the cached counts. Raise TypeError if this one is frozen."""
        if self._frozen:
            raise TypeError(REFUSED)
        if not isinstance(text, str):
            raise TokenizableEvaluatorInvalid(
                f"a Tokenizable holds text, not {type(text).__name__}; functions are not evaluated: pass a str"
            )
        self._text = str(text)
        self._counts: dict[str | Encoder | None, int] = {}

    def copy(self) -> Tokenizable:
        """Return a mutable copy, independent of later changes to this one."""
        return Tokenizable(self._text, key=self._key)

    def frozen(self) -> Tokenizable:
        """Return a frozen copy, or this object if it is already frozen."""
        return self if self._frozen else Tokenizable.frozen_text(self._text, key=self._key)

    @classmethod
    def frozen_text(cls, text: str, *, key: str | None = None) -> Tokenizable:
        """Return frozen text."""
        found = cls(text, key=key)
        found._frozen = True
        return found

    def estimate_tokens(self, encoding: str | Encoder | None = None) -> int:
        """Return the number of tokens; see `count_tokens`. Counted once per encoding."""
        found = self._counts.get(encoding)
        if found is None:
            found = self._counts[encoding] = count_tokens(self._text, encoding)
        return found

    def to_json(self) -> str:
        return self._text

    def __str__(self) -> str:
        return self._text

    def __len__(self) -> int:
        return len(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        shown = self._text if len(self._text) <= 60 else f"{self._text[:57]}..."
        return f"Tokenizable({shown!r})" if self._key is None else f"Tokenizable({shown!r}, key={self._key!r})"


# --------------------------------------------------------------------------------------------------------------- frozen


REFUSED = "a primitive can't be changed; make a changed copy with dataclasses.replace, and store it with ctx.mutate_…"
_LEAVES = (str, int, float, bool, bytes, type(None))


class FrozenDict(dict[Any, Any]):
    """An immutable dict."""

    __slots__ = ()

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, _memo: object) -> Any:
        return thawed(self)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class FrozenList(list[Any]):
    """An immutable list."""

    __slots__ = ()

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, _memo: object) -> Any:
        return thawed(self)

    def __reduce__(self) -> Any:
        return list, (list(self),)


def _refuse(_self: object, *_args: object, **_fields: object) -> NoReturn:
    raise TypeError(REFUSED)


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(FrozenDict, _name, _refuse)
for _name in (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__"),
    *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"),
):
    setattr(FrozenList, _name, _refuse)


def frozen(value: Any) -> Any:
    """Return an immutable copy, as far as it consists of dicts, lists, tuples and sets; other values are copied."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, dict):
        return FrozenDict({key: frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return FrozenList([frozen(item) for item in value])
    if type(value) is tuple:
        return tuple(frozen(item) for item in value)
    if isinstance(value, set | frozenset):
        return frozenset(value)
    return copy.deepcopy(value)


def thawed(value: Any) -> Any:
    """Return a mutable copy of a frozen value."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, dict):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thawed(item) for item in value]
    if type(value) is tuple:
        return tuple(thawed(item) for item in value)
    return copy.deepcopy(value)
