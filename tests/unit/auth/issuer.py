"""An issuer of tokens with real keys, and its key set on a real local HTTP server."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

SECRET = "a secret of thirty-two bytes or more"
ISSUER = "https://issuer.example"
AUDIENCE = "my-agent"


@cache
def private_key(algorithm: str, number: int = 1) -> Any:
    """Return the private key for an algorithm; another number is another key."""
    match algorithm[:2]:
        case "RS" | "PS":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "ES":
            return ec.generate_private_key(
                {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}[algorithm]
            )
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def public_pem(algorithm: str, number: int = 1) -> str:
    key = private_key(algorithm, number).public_key()
    pem: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def private_pem(algorithm: str, number: int = 1) -> str:
    pem: bytes = private_key(algorithm, number).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem.decode()


def jwk(algorithm: str, number: int = 1, **members: Any) -> dict[str, Any]:
    """Return the public key as a JWK, named key-<number>."""
    kinds: dict[str, Any] = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "ES": ECAlgorithm, "Ed": OKPAlgorithm}
    public: dict[str, Any] = kinds[algorithm[:2]].to_jwk(private_key(algorithm, number).public_key(), as_dict=True)
    public.pop("key_ops", None)
    return {**public, "kid": f"key-{number}", **members}


def claims(**changed: Any) -> dict[str, Any]:
    """Return valid claims with some changed; None removes one."""
    now = int(time.time())
    found = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 600, "iat": now, "nbf": now, **changed}
    return {name: value for name, value in found.items() if value is not None}


def token(
    algorithm: str = "HS256",
    *,
    number: int = 1,
    key: Any = None,
    headers: dict[str, Any] | None = None,
    **changed: Any,
) -> str:
    signing = key if key is not None else SECRET if algorithm[:2] == "HS" else private_key(algorithm, number)
    return jwt.encode(claims(**changed), signing, algorithm=algorithm, headers=headers)


def b64(raw: bytes | str) -> str:
    raw = raw.encode() if isinstance(raw, str) else raw
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def handmade(header: Mapping[str, Any] | str, payload: Mapping[str, Any] | str, *, secret: str | bytes = SECRET) -> str:
    """Return a token that no library would create, signed with HS256."""
    head, body = (part if isinstance(part, str) else json.dumps(part) for part in (header, payload))
    signed = f"{b64(head)}.{b64(body)}"
    raw = secret.encode() if isinstance(secret, str) else secret
    signature = jwt.get_algorithm_by_name("HS256").sign(signed.encode(), raw)
    return f"{signed}.{b64(signature)}"


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


class KeySetServer:
    """The key set of an issuer over HTTP. Its response and delay can be changed at any time."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.body = json.dumps({"keys": keys}).encode()
        self.status = 200
        self.headers: list[str] = []
        self.delay_seconds = 0.0
        self.drip_seconds = 0.0  # between the bytes of the body
        self.requests = 0
        self.url = ""
        self._server: asyncio.Server | None = None

    def publish(self, *keys: dict[str, Any]) -> None:
        self.body = json.dumps({"keys": keys}).encode()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/jwks.json"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            await asyncio.sleep(self.delay_seconds)
            lines = [
                f"HTTP/1.1 {self.status} X",
                f"content-length: {len(self.body)}",
                "connection: close",
                *self.headers,
            ]
            head = "\r\n".join([*lines, "", ""])
            writer.write(head.encode())
            for piece in [self.body] if not self.drip_seconds else [bytes([byte]) for byte in self.body]:
                await asyncio.sleep(self.drip_seconds)
                writer.write(piece)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client gave up
        finally:
            writer.close()


class Ticks:
    """A monotonic clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
