"""A store as the environment describes it, for tools that take a factory (``keelbolt.state:create_store``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from keelbolt.errors import InvalidState
from keelbolt.state.policy import PolicyName
from keelbolt.state.store import StateStore

URL = "KEELBOLT_STATE_URL"
TENANT = "KEELBOLT_STATE_TENANT"
POLICY = "KEELBOLT_STATE_POLICY"
SPOOL = "KEELBOLT_STATE_SPOOL"


def create_store(environ: Mapping[str, str] | None = None) -> StateStore:
    """The store at KEELBOLT_STATE_URL.

    KEELBOLT_STATE_TENANT, KEELBOLT_STATE_POLICY and KEELBOLT_STATE_SPOOL stand for the arguments of these names.
    """
    found = os.environ if environ is None else environ
    url = found.get(URL)
    if not url:
        raise InvalidState(f"set {URL} to the storage of the state, such as sqlite:///state.db")
    return StateStore(
        url,
        tenant=found.get(TENANT) or "default",
        policy=cast("PolicyName", found.get(POLICY) or "strict"),
        spool=found.get(SPOOL) or None,
    )
