"""The request for an event: the body in the config's protocol version, and the headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from pydantic_core import from_json, to_json

from keelbolt.kernel import Entry, Scope
from keelbolt.protocol import v03, v1
from keelbolt.protocol.signatures import CardKey
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.tasks.files import with_addresses
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.stored_tasks import StoredTasks
from keelbolt.webhooks.configs import StoredConfig
from keelbolt.webhooks.signing import secret_of, standard_headers, token


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
