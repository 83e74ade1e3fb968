"""Encrypts the credentials of webhooks before they are stored, so that files and backups do not hold them in clear.

A sealed value is bound to its config: moved to another task or config, it can't be decrypted.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import TYPE_CHECKING, Self

from keelbolt.errors import InvalidValue, MissingExtra, SecretKeyMissing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MIN_KEY_CHARACTERS = 32
NONCE_BYTES = 12

_FORMAT = "k1"
_PURPOSE = b"keelbolt webhook credentials 1"


class Sealer:
    """AES-256-GCM with keys derived from secrets. The first secret encrypts, all of them decrypt."""

    def __init__(self, *secrets: str) -> None:
        if not secrets or any(len(secret) < MIN_KEY_CHARACTERS for secret in secrets):
            raise InvalidValue(
                f"KEELBOLT_SECRET_KEY must be one secret, or several separated by commas, each of at least "
                f"{MIN_KEY_CHARACTERS} characters. Make one with: "
                "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra("auth", "pyjwt[crypto]") from error
        self._keys: dict[str, AESGCM] = {}
        for secret in secrets:
            key = HKDF(SHA256(), 32, salt=None, info=_PURPOSE).derive(secret.encode())
            self._keys.setdefault(hashlib.sha256(key).hexdigest()[:8], AESGCM(key))
        self._first = next(iter(self._keys))

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the sealer for a setting of comma-separated secrets; None if the setting is empty."""
        secrets = [secret.strip() for secret in text.split(",")]
        return cls(*secrets) if text else None

    def seal(self, plain: bytes, place: str) -> str:
        """Encrypt a value, bound to the key under which it is stored."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + self._keys[self._first].encrypt(nonce, plain, place.encode())
        return f"{_FORMAT}.{self._first}.{base64.urlsafe_b64encode(sealed).decode()}"

    def open(self, sealed: str, place: str) -> bytes:
        """Decrypt a value that was encrypted for this storage key. Raises SecretKeyMissing."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra, which is installed here

        kind, name, text = (*sealed.split("."), "", "")[:3]
        key = self._keys.get(name)
        if key is None or kind != _FORMAT:
            raise SecretKeyMissing(
                "the credentials are encrypted with a key that is not in KEELBOLT_SECRET_KEY; add it at the end"
            )
        try:
            raw = base64.urlsafe_b64decode(text)
            return key.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], place.encode())
        except (InvalidTag, ValueError):
            raise SecretKeyMissing(
                "the encrypted credentials are damaged, or were moved here from another config; create the config again"
            ) from None


def opened(sealer: Sealer | None, sealed: str, place: str) -> bytes:
    """Decrypt a value, with a sealer or without one. Raises SecretKeyMissing."""
    if sealer is None:
        raise SecretKeyMissing
    return sealer.open(sealed, place)
