"""Creates a store from environment variables, for tools that take a factory (``keelbolt.state:create_store``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from keelbolt.errors import InvalidState, InvalidValue
from keelbolt.state.families import StateRetention
from keelbolt.state.store import StateStore

URL = "KEELBOLT_STATE_URL"


def create_store(environ: Mapping[str, str] | None = None) -> StateStore:
    """Return the store at KEELBOLT_STATE_URL; KEELBOLT_STATE_TENANT, …_POLICY, …_SPOOL, …_WRITE_BEHIND,
    …_TIMEOUT_SECONDS, …_PAUSE_SECONDS, …_RETAIN and …_SWEEP_EVERY are its other arguments.
    """
    found = os.environ if environ is None else environ
    url = found.get(URL)
    if not url:
        raise InvalidState(f"{URL} is not set; set it to the URL of a storage, such as sqlite:///state.db")
    given: dict[str, Any] = {}
    for variable, (argument, read) in SETTINGS.items():
        if text := found.get(variable):
            try:
                given[argument] = read(text)
            except (ValueError, InvalidValue) as error:
                raise InvalidState(f"{variable}={text!r}: {error}") from error
    return StateStore(url, **given)


def create_session_store(environ: Mapping[str, str] | None = None) -> Any:
    """Return `create_store` for PenguiFlow's sessions: opening a session fails the tasks of dead processes."""
    from keelbolt.state.sessions import OwnedTasks  # noqa: PLC0415  (sessions import stores)

    return OwnedTasks(create_store(environ))


def _flag(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in known:
        raise InvalidValue("must be true or false")
    return known[text.lower()]


def _seconds_or_never(text: str) -> float | None:
    return None if text == "never" else float(text)


SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "KEELBOLT_STATE_TENANT": ("tenant", str),
    "KEELBOLT_STATE_POLICY": ("policy", str),
    "KEELBOLT_STATE_SPOOL": ("spool", str),
    "KEELBOLT_STATE_WRITE_BEHIND": ("write_behind", _flag),
    "KEELBOLT_STATE_TIMEOUT_SECONDS": ("timeout_seconds", float),
    "KEELBOLT_STATE_PAUSE_SECONDS": ("pause_seconds", float),
    "KEELBOLT_STATE_RETAIN": ("retention", lambda text: StateRetention.parse([text])),
    "KEELBOLT_STATE_SWEEP_EVERY": ("sweep_every", _seconds_or_never),
}
