"""One streaming POST to a provider: timeouts, retries before the first event, and server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from keelbolt.errors import ModelError
from keelbolt.kernel.blobs import lines_of

RETRY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
BACKOFF_SECONDS = 0.5  # doubled with each retry
MAX_WAIT_SECONDS = 30.0  # a longer Retry-After raises an error instead
MAX_ERROR_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class ProviderEndpoint:
    """A provider's URL and headers, with timeout and retries."""

    url: str
    headers: Mapping[str, str]
    timeout_seconds: float
    retries: int

    async def events(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the JSON of each event. Raise ModelError; a request without any event so far is retried first."""
        for attempt in range(self.retries + 1):
            got = False
            try:
                async for event in self._once(body):
                    got = True
                    yield event
            except _Again as again:
                if got or attempt == self.retries or again.seconds > MAX_WAIT_SECONDS:
                    raise ModelError(str(again)) from again.__cause__
                await asyncio.sleep(max(again.seconds, BACKOFF_SECONDS * 2**attempt))
            else:
                return

    async def _once(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")  # text may have lone surrogates
        headers = {"content-type": "application/json", **self.headers}
        try:
            async with (
                httpx2.AsyncClient(timeout=self.timeout_seconds) as client,
                client.stream("POST", self.url, content=content, headers=headers) as response,
            ):
                if response.status_code != httpx2.codes.OK:
                    await response.aread()
                    words = f"the model's provider returned {response.status_code}: {_problem(response.text)}"
                    if response.status_code in RETRY_STATUS:
                        raise _Again(words, _pause(response.headers.get("retry-after")))
                    raise ModelError(words)
                # `aiter_lines` also ends a line at U+2028 and similar characters, which are allowed within JSON.
                async for line in lines_of(response.aiter_bytes()):
                    data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
                    if data == b"[DONE]":
                        return
                    if data:
                        yield _event(data.decode("utf-8", "replace"))
        except httpx2.TimeoutException as error:
            raise _Again(f"the model's provider did not respond within {self.timeout_seconds:g} s") from error
        except httpx2.HTTPError as error:
            raise _Again(
                f"the connection to the model's provider failed: {str(error) or type(error).__name__}"
            ) from error


UNFIT = (KeyError, TypeError, AttributeError, IndexError, ValueError)  # raised when an unexpected event is read


def unfit(error: Exception) -> ModelError:
    return ModelError(f"the model's provider sent an event that does not follow its protocol ({error!r})"[:300])


class _Again(Exception):
    """The request can be retried after ``seconds``."""

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


def _event(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ModelError(f"the model's provider sent an event that is not a JSON object: {data[:80]!r}")
    if error := found.get("error"):
        words = error.get("message") if isinstance(error, dict) else error
        raise ModelError(f"the model's provider reported an error: {words}")
    return found


def _problem(text: str) -> str:
    """Return the error message in the body of an error response."""
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:MAX_ERROR_CHARACTERS]
    except (ValueError, KeyError, TypeError):
        return text[:MAX_ERROR_CHARACTERS] or "no reason given"


def _pause(value: str | None) -> float:
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        return 0.0
