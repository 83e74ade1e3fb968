"""A store as the environment describes it, for tools that take a factory (``holdfast.state:create_store``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from holdfast.errors import InvalidState
from holdfast.state.policy import PolicyName
from holdfast.state.store import StateStore

URL = "HOLDFAST_STATE_URL"
TENANT = "HOLDFAST_STATE_TENANT"
POLICY = "HOLDFAST_STATE_POLICY"
SPOOL = "HOLDFAST_STATE_SPOOL"


def create_store(environ: Mapping[str, str] | None = None) -> StateStore:
    """The store at HOLDFAST_STATE_URL.

    HOLDFAST_STATE_TENANT, HOLDFAST_STATE_POLICY and HOLDFAST_STATE_SPOOL stand for the arguments of these names.
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
