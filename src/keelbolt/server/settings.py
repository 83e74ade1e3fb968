"""The settings of the server: arguments first, then ``KEELBOLT_*`` in the environment, then these defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

from keelbolt.environment import check_names, read_flag
from keelbolt.errors import InvalidValue
from keelbolt.explorer import checked_agent, checked_prefix
from keelbolt.operations.call import SYSTEM_OPERATOR, TENANT_OPERATOR
from keelbolt.protocol.limits import Limits
from keelbolt.protocol.versions import ALL, Version
from keelbolt.server.addresses import check_grpc_url, check_host, check_origin, check_public_url

Operators = Literal["none", "loopback"]

OPERATOR_ROLES = (TENANT_OPERATOR, SYSTEM_OPERATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How the agent is served. Every field can be given as ``KEELBOLT_<FIELD>`` in the environment."""

    url: str = ""  # where clients reach the agent; empty: as the request says
    grpc_url: str = ""  # where they reach it by gRPC, host:port; empty: the same host, at the port of gRPC
    protocols: Sequence[str] = ("1.0", "0.3")  # the versions of A2A that are spoken
    trust_proxy: bool = False  # believe X-Forwarded-Proto, X-Forwarded-Host and the last X-Forwarded-For
    body_bytes: int = 10 * 1024 * 1024
    body_seconds: float = 60.0  # until the whole body is here
    header_bytes: int = 65_536  # path, query and headers together
    header_seconds: float = 15.0  # until all headers are here
    blocking_seconds: float = 0.0  # a blocking send is answered after so long at the latest; 0: when the turn is over
    generation: bool = False  # declare the generation extension in the card
    long_poll_seconds: float = 20.0  # a GetTask that waits for a newer generation is answered after so long
    heartbeat_stream_seconds: float = 4.0  # the official SDK clients give up after 5 s of silence
    streams: int = 10_000  # open at once in this process; more are answered with 503
    streams_each: int = 1_000  # of them, those of one owner; 0: all. Callers without a name share the whole
    requests_per_second: float = 0.0  # of one principal, or of one address without a principal; 0: no limit
    request_burst: int = 100
    cancel_on_disconnect: bool = False
    cancel_words: str = ""  # the message of a status that a client's cancel leads to
    cors_origins: Sequence[str] = ()
    metrics: bool = False
    explorer: bool | None = None  # serve the explorer; None: to who is authenticated, or else sits at this machine
    explorer_prefix: str = "/explorer"
    explorer_agents: Sequence[str] = ()  # addresses of other agents that the explorer may show
    operators: Operators = "none"  # who is one where there is no authentication; loopback: who sits at this machine
    webhook_loopback: bool = False  # allow webhooks into this machine: for development
    webhook_secret: str = field(default="", repr=False)  # signs deliveries to webhooks, beside their own token
    webhook_give_up_seconds: float = 3 * 86400.0  # a webhook that failed for so long is told nothing more
    write_seconds: float = 30.0  # an answer of which a client reads nothing for so long is dropped
    connections: int = 10_000  # open at once in this process; more get 503. 0: as many as the process may open files
    connections_each: int = 1_000  # of them, those of one address; 0: all
    allow_anonymous: bool = False  # without authentication, listen where other machines reach the agent
    allowed_hosts: Sequence[str] = ()  # without authentication: Host names to answer to, beside loopback names and url
    webhook_hosts: Sequence[str] = ()  # the only hosts that may receive webhooks, *.example.com included; empty: all
    secret_key: str = field(default="", repr=False)  # encrypts stored credentials; with commas: several
    failed_logins: int = 20  # of one address within a minute; more are refused with 429; 0: no limit
    operator_roles: Sequence[str] = OPERATOR_ROLES  # the roles that make operators; empty: roles make none

    def __post_init__(self) -> None:
        checked_prefix(self.explorer_prefix)
        for agent in self.explorer_agents:
            checked_agent(agent)
        if isinstance(self.protocols, str) or not self.protocols or not set(self.protocols) <= set(ALL):
            raise InvalidValue(f"protocols are some of {', '.join(ALL)}, not {self.protocols!r}")
        if self.operators not in get_args(Operators):
            raise InvalidValue(f"operators is one of {', '.join(get_args(Operators))}, not {self.operators!r}")
        if isinstance(self.operator_roles, str) or not set(self.operator_roles) <= set(OPERATOR_ROLES):
            raise InvalidValue(f"operator_roles are some of {', '.join(OPERATOR_ROLES)}, or none")
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
                    raise InvalidValue(f"{each.name} is a number of at least {low}, not {value!r}")

    @property
    def versions(self) -> tuple[Version, ...]:
        """The versions of A2A that are spoken, the newest first."""
        return tuple(version for version in reversed(ALL) if version in self.protocols)

    @property
    def limits(self) -> Limits:
        return Limits(body_bytes=self.body_bytes, body_seconds=self.body_seconds)

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Self:
        """The settings from arguments (None: not given) and the environment."""
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
