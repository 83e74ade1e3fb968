"""Text for models, with token counts."""

from __future__ import annotations

from collections.abc import Callable, Sized

from keelbolt.errors import TokenizableEvaluatorInvalid
from keelbolt.turns.primitives.frozen import REFUSED

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
