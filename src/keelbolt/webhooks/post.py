"""The request for an event, and its POST: to the checked address, without redirects, with a short timeout."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from pydantic_core import from_json, to_json

from keelbolt.errors import AddressNotAllowed
from keelbolt.kernel import Entry, Scope
from keelbolt.outbound.addresses import RequestTarget, Resolver, check_url
from keelbolt.outbound.connection import BadResponse, ClosedEarly, OutboundConnection, connect
from keelbolt.protocol import v03, v1
from keelbolt.protocol.signatures import CardKey
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.tasks.files import with_addresses
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.stored_tasks import StoredTasks
from keelbolt.webhooks.configs import StoredConfig
from keelbolt.webhooks.signing import secret_of, standard_headers, token

TOTAL_SECONDS = 15.0
MAX_KEPT = 256  # maximum number of idle connections of this process
MAX_KEPT_EACH = 8  # the same per host
_HEADER = re.compile(r"[\t\x20-\x7e]*")

Key = tuple[str, str, int]
Category = Literal["address", "timeout", "connection", "tls", "answer", "status", "config", "receiver", "internal"]
"""Kinds of failures: the address is not allowed, no response in time, no connection, no trusted certificate, no valid
HTTP, an HTTP status other than 2xx, a config that can't be delivered to, a receiver that is known to be down,
anything else.
"""


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of a POST. ``gone``: the receiver wants no more events (410). ``silent``: it did not respond.

    ``code`` is the HTTP status of the response; 0: there was none. ``tried``: whether anything was sent. ``error`` is
    the cause, for operators; ``category`` is the kind of error that callers see.
    """

    ok: bool
    gone: bool = False
    silent: bool = False
    error: str = ""
    code: int = 0
    tried: bool = True
    category: Category = "internal"


class Poster:
    """Posts, and keeps connections to receivers; each connection is for one host.

    The name of a host is resolved once per connection, and the connection goes to the resolved and checked address.
    ``tls`` defines the trusted certificates; None: those of public authorities.
    """

    def __init__(
        self,
        *,
        loopback: bool = False,
        resolver: Resolver | None = None,
        hosts: Sequence[str] = (),
        seconds: float = TOTAL_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loopback = loopback
        self._resolver = resolver
        self._hosts = tuple(hosts)
        self._seconds = seconds
        self._tls = tls
        self._kept: OrderedDict[Key, list[OutboundConnection]] = OrderedDict()
        self._count = 0

    async def aclose(self) -> None:
        while self._kept:
            self._drop_oldest()
        await asyncio.sleep(0)  # aborted connections are closed in the next iteration of the event loop

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> PostResult:
        """Post, and return the result; never raises. The result contains nothing of the URL or the headers."""
        try:
            async with asyncio.timeout(self._seconds):
                target = check_url(url, loopback=self._loopback, hosts=self._hosts)
                status = await self._post(target, _head(target, len(body), headers), body)
        except TimeoutError:
            return PostResult(
                ok=False, silent=True, error=f"no response within {self._seconds:g} s", category="timeout"
            )
        except AddressNotAllowed as error:
            return PostResult(ok=False, error=str(error), category="address")
        except BadResponse as error:
            return PostResult(ok=False, error=str(error), category="answer")
        except ssl.SSLError as error:
            cause = f"TLS failed: {getattr(error, 'verify_message', '') or error.reason}"[:300]
            return PostResult(ok=False, error=cause, category="tls")
        except OSError as error:
            cause = f"no connection: {error.strerror or type(error).__name__}"[:300]
            return PostResult(ok=False, silent=True, error=cause, category="connection")
        except ValueError:
            cause = "the token or the credentials of the config can't be sent in a header"
            return PostResult(ok=False, error=cause, category="config")
        if 200 <= status < 300:
            return PostResult(ok=True, code=status)
        return PostResult(ok=False, gone=status == 410, error=f"HTTP {status}", code=status, category="status")

    async def _post(self, target: RequestTarget, head: bytes, body: bytes) -> int:
        key = (target.scheme, target.host.lower(), target.port)
        connection = self._take(key) or await self._connect(target)
        try:
            try:
                status = await connection.post(head, body)
            except ClosedEarly:  # the idle connection was closed; the second POST has the same delivery id
                connection.close()
                connection = await self._connect(target)
                status = await connection.post(head, body)
        except BaseException:
            connection.close()
            raise
        self._keep(key, connection)
        return status

    async def _connect(self, target: RequestTarget) -> OutboundConnection:
        return await connect(target, loopback=self._loopback, resolver=self._resolver, tls=self._tls)

    # --------------------------------------------------------------------------------------------------- connections

    def _take(self, key: Key) -> OutboundConnection | None:
        kept = self._kept.get(key, [])
        while kept:
            connection = kept.pop()
            self._count -= 1
            if not kept:
                del self._kept[key]
            if connection.idle:
                return connection
            connection.close()
        return None

    def _keep(self, key: Key, connection: OutboundConnection) -> None:
        kept = self._kept.get(key, [])
        if not connection.idle or len(kept) >= MAX_KEPT_EACH:
            connection.close()
            return
        self._kept[key] = [*kept, connection]
        self._kept.move_to_end(key)
        self._count += 1
        while self._count > MAX_KEPT:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, kept = self._kept.popitem(last=False)
        self._count -= len(kept)
        for connection in kept:
            connection.close()


def _head(target: RequestTarget, size: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.netloc}", f"Content-Length: {size}"]
    for name, value in headers.items():
        if not _HEADER.fullmatch(value):
            raise ValueError(name)
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


# ------------------------------------------------------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """One delivery. Its repr hides the headers, because they hold credentials."""

    url: str
    body: bytes
    headers: dict[str, str]

    def __repr__(self) -> str:
        return f"<Letter {self.headers.get('webhook-id', '')}>"


class WebhookRequests:
    """Builds the requests, signed with the secret of the config, and with the server's ``secret`` if it has one."""

    def __init__(
        self,
        store: StoredTasks,
        *,
        secret: str = "",
        key: CardKey | None = None,
        carrier: Callable[[], Mapping[str, str]] | None = None,
        address: str = "",
    ) -> None:
        self._store = store
        self._secret = secret_of(secret)
        self._key = key
        self._carrier = carrier
        self._address = address  # address of the server, for links to files

    async def write(self, scope: Scope, record: TaskRecord, stored: StoredConfig, entry: Entry) -> WebhookRequest:
        config = stored.config
        if stored.version is ProtocolVersion.v1_0:
            body, content_type = self._event(record, entry), "application/a2a+json"
        else:
            body, content_type = await self._task(scope, record.task_id, entry), "application/json"
        delivery_id = f"{_plain(record.task_id)}:{_plain(config.id or '')}:{entry.seq}"
        moment = self._store.clock.wall() // 1_000_000
        headers = {"Content-Type": content_type, "User-Agent": "keelbolt"}
        headers |= standard_headers([secret_of(stored.secret), self._secret], delivery_id, moment, body)
        if config.token:
            headers["X-A2A-Notification-Token"] = config.token
        if config.authentication is not None and config.authentication.credentials:
            headers["Authorization"] = f"{config.authentication.scheme} {config.authentication.credentials}"
        if self._key is not None:
            headers["X-A2A-Notification-JWT"] = token(self._key, config.url, delivery_id, moment, body)
        if self._carrier is not None:
            headers |= self._carrier()
        return WebhookRequest(config.url, body, headers)

    async def _task(self, scope: Scope, task_id: str, entry: Entry) -> bytes:
        """Return the task, with the status of this event; later statuses are delivered later."""
        task = await self._store.load(scope, task_id)
        task.view.status = to_json(from_json(entry.data)["status"])
        return v03.task(with_addresses(await self._store.task_json(task), self._address))

    def _event(self, record: TaskRecord, entry: Entry) -> bytes:
        splice, data = v1.EventEncoder(record.task_id, record.context_id), with_addresses(entry.data, self._address)
        return splice.artifact_update(data) if entry.kind == "artifact" else splice.status_update(data)


def _plain(name: str) -> str:
    """Return the name without colons, which separate the parts of an id, and dots, which separate signed parts."""
    return quote(name, safe="").replace(".", "%2E")


def wanted(entry: Entry, version: ProtocolVersion) -> bool:
    """Return whether an event is delivered: in 1.0 every event; in 0.3 (whole tasks) only changes of the status."""
    return entry.kind in WIRE_KINDS and (version is ProtocolVersion.v1_0 or entry.kind != "artifact")
