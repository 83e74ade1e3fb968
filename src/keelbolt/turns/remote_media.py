"""Media at a URL given by a client: downloaded when it is read, under the rules of the storage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from keelbolt.outbound.download import DownloadRules, download
from keelbolt.turns.readers import Descriptor

URL_TAG = "keelbolt.url"


class RemoteMediaReader:
    """Downloads the file at each `stream`. Raises AddressNotAllowed or DownloadFailed."""

    def __init__(self, url: str, rules: DownloadRules) -> None:
        self.url = url
        self._rules = rules

    @classmethod
    def at(cls, rules: DownloadRules, locator: Any) -> RemoteMediaReader:
        """Return the reader for a locator from `describe`."""
        return cls(str(locator["url"]), rules)

    def stream(self) -> AsyncIterator[bytes]:
        return download(self.url, self._rules)

    async def byte_length(self) -> int | None:
        """Return None: the length is not known before the download."""
        return None

    def describe(self) -> Descriptor:
        return Descriptor(tag=URL_TAG, locator={"url": self.url})
