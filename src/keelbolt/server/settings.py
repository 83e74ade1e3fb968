"""The settings of the server: arguments first, then ``KEELBOLT_*`` in the environment, then these defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit

from keelbolt.environment import check_names, read_flag
from keelbolt.errors import InvalidValue
from keelbolt.explorer import checked_agent, checked_prefix
from keelbolt.operations.call import SYSTEM_OPERATOR, TENANT_OPERATOR
from keelbolt.protocol.validation import Limits
from keelbolt.protocol.versions import ALL, ProtocolVersion

Operators = Literal["none", "loopback"]

OPERATOR_ROLES = (TENANT_OPERATOR, SYSTEM_OPERATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How the agent is served. Every field can be given as ``KEELBOLT_<FIELD>`` in the environment."""

    url: str = ""  # public URL of the agent; empty: taken from the request
    grpc_url: str = ""  # public gRPC address, host:port; empty: the same host, with the gRPC port
    protocols: Sequence[str] = ("1.0", "0.3")  # supported versions of A2A
    trust_proxy: bool = False  # trust X-Forwarded-Proto, X-Forwarded-Host and the last X-Forwarded-For
    body_bytes: int = 10 * 1024 * 1024
    body_seconds: float = 60.0  # time limit for the whole body
    header_bytes: int = 65_536  # path, query and headers together
    header_seconds: float = 15.0  # time limit for all headers
    blocking_seconds: float = 0.0  # longest wait of a blocking send; 0: until the turn ends
    generation: bool = False  # declare the generation extension in the card
    long_poll_seconds: float = 20.0  # longest wait of a GetTask for a newer generation
    heartbeat_stream_seconds: float = 4.0  # the official SDK clients time out after 5 s of silence
    streams: int = 10_000  # open at once in this process; more get 503
    streams_each: int = 1_000  # of these, per owner; 0: no limit. Anonymous callers share the total
    requests_per_second: float = 0.0  # per principal, or per address of anonymous callers; 0: no limit
    request_burst: int = 100
    cancel_on_disconnect: bool = False
    cancel_words: str = ""  # status message of a task that a client cancels
    cors_origins: Sequence[str] = ()
    metrics: bool = False
    explorer: bool | None = None  # serve the explorer; None: to authenticated clients, or else to loopback clients
    explorer_prefix: str = "/explorer"
    explorer_agents: Sequence[str] = ()  # addresses of other agents that the explorer may show
    operators: Operators = "none"  # operators without authentication; loopback: loopback clients
    webhook_loopback: bool = False  # allow webhooks to this machine, for development
    webhook_secret: str = field(default="", repr=False)  # signs webhook deliveries, besides their own token
    webhook_give_up_seconds: float = 3 * 86400.0  # a webhook that fails for this long is given up
    write_seconds: float = 30.0  # drop a response if the client reads nothing for this long
    connections: int = 10_000  # open at once at each port of this process; more get 503. 0: the limit of open files
    connections_each: int = 1_000  # of these, per address; 0: no limit
    allow_anonymous: bool = False  # allow other machines to reach an agent without authentication
    allowed_hosts: Sequence[str] = ()  # without authentication: accepted Host names, besides loopback and url
    webhook_hosts: Sequence[str] = ()  # the only hosts that may receive webhooks; *.example.com works; empty: all
    secret_key: str = field(default="", repr=False)  # encrypts stored credentials; several keys separated by commas
    failed_logins: int = 20  # per address and minute; more get 429; 0: no limit
    operator_roles: Sequence[str] = OPERATOR_ROLES  # the roles that make a caller an operator; empty: none

    def __post_init__(self) -> None:
        checked_prefix(self.explorer_prefix)
        for agent in self.explorer_agents:
            checked_agent(agent)
        if isinstance(self.protocols, str) or not self.protocols or not set(self.protocols) <= set(ALL):
            raise InvalidValue(f"protocols must be one or more of {', '.join(ALL)}, not {self.protocols!r}")
        if self.operators not in get_args(Operators):
            raise InvalidValue(f"operators must be one of {', '.join(get_args(Operators))}, not {self.operators!r}")
        if isinstance(self.operator_roles, str) or not set(self.operator_roles) <= set(OPERATOR_ROLES):
            raise InvalidValue(f"operator_roles must be some of {', '.join(OPERATOR_ROLES)}, or empty")
        self._check_numbers()
        check_public_url(self.url)
        check_grpc_url(self.grpc_url)
        for origin in self.cors_origins:
            check_origin(origin)
        for setting in ("allowed_hosts", "webhook_hosts"):
            for host in getattr(self, setting):
                check_host(setting, host)

    def _check_numbers(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(each.default) in (int, float):
                low = 1 if each.name in ("body_bytes", "header_bytes") else 0
                if isinstance(value, bool) or not isinstance(value, int | float) or not value >= low:
                    raise InvalidValue(f"{each.name} must be a number of at least {low}, not {value!r}")

    @property
    def versions(self) -> tuple[ProtocolVersion, ...]:
        """Return the supported versions of A2A, newest first."""
        return tuple(version for version in reversed(ALL) if version in self.protocols)

    @property
    def limits(self) -> Limits:
        return Limits(body_bytes=self.body_bytes, body_seconds=self.body_seconds)

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Return the settings from arguments (None: not given) and the environment."""
        environment = os.environ if environment is None else environment
        check_names(environment)
        chosen: dict[str, Any] = {}
        for each in fields(cls):
            name = f"KEELBOLT_{each.name.upper()}"
            if given.get(each.name) is not None:
                chosen[each.name] = given[each.name]
            elif name in environment:
                if each.name == "secret_key" and not environment[name].strip():
                    raise InvalidValue(f"{name} is set, but empty; give it a value, or unset it")
                chosen[each.name] = _read(name, environment[name], each.default)
        if unknown := set(given) - {each.name for each in fields(cls)}:
            raise InvalidValue(f"there is no setting {', '.join(sorted(unknown))}")
        return cls(**chosen)


def _read(name: str, text: str, default: Any) -> Any:
    if default is None or isinstance(default, bool):
        return read_flag(name, text)
    if isinstance(default, tuple):
        return tuple(item.strip() for item in text.split(",") if item.strip())
    try:
        return type(default)(text)
    except ValueError:
        raise InvalidValue(f"{name} must be a number, not {text!r}") from None


# ------------------------------------------------------------------------------------------------------------ addresses


def check_public_url(url: str) -> None:
    """Raise InvalidValue unless ``url`` is empty or a web address that the card can publish."""
    if not url:
        return
    said = f"url must be the address where clients reach the agent, for example https://agent.example.com, not {url!r}"
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
        parts = urlsplit("")
    if not known:
        bare = "://" not in url and "/" not in url and " " not in url
        local = url.partition(":")[0] in ("localhost", "127.0.0.1")
        hint = f"; did you mean {'http' if local else 'https'}://{url}?" if bare else ""
        raise InvalidValue(said + hint)
    if parts.query or parts.fragment or parts.username is not None or not url.isprintable() or " " in url:
        raise InvalidValue(f"{said}; it must not contain spaces, ?, # or a password")


def check_grpc_url(address: str) -> None:
    """Raise InvalidValue unless ``address`` is empty or HOST:PORT, with or without http:// or https://."""
    host, colon, port = address.removeprefix("https://").removeprefix("http://").rpartition(":")
    if address and not (host and colon and port.isdigit() and 0 < int(port) < 65536 and "/" not in host):
        raise InvalidValue(f"grpc_url must be HOST:PORT, for example agent.example.com:443, not {address!r}")


def check_origin(origin: str) -> None:
    """Raise InvalidValue unless ``origin`` is ``*``, ``null``, or scheme, host and port as in an Origin header."""
    scheme, divided, rest = origin.partition("://")
    if origin not in ("*", "null") and not (scheme and divided and rest and "/" not in rest):
        whole = origin.rstrip("/") if divided else f"https://{origin}".rstrip("/")
        raise InvalidValue(
            f"an origin must be a scheme and a host without a path, not {origin!r}; did you mean {whole}?"
        )


def check_host(setting: str, host: str) -> None:
    """Raise InvalidValue if ``host`` is a URL instead of a host name."""
    if "/" in host or " " in host or not host:
        name = (urlsplit(host).hostname if "://" in host else host.partition("/")[0].strip()) or "agent.example.com"
        raise InvalidValue(f"{setting} must be host names, not {host!r}; did you mean {name}?")
