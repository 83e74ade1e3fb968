"""The Redis and Valkey engine obeys every law. Each law has its own namespace on one real server."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
import redis

from keelbolt.conformance.kernel import KernelPlace, KernelSubject
from keelbolt.conformance.kernel.histories import check_histories
from keelbolt.conformance.pytest import kernel_laws
from keelbolt.kernel import Collection, Kernel, open_storage
from keelbolt.testing.valkey import URL_VARIABLE, ValkeyServer, own_valkey

pytest_plugins = ["keelbolt.testing.pytest"]


@pytest.fixture(scope="module", autouse=True)
def server(keelbolt_valkey: ValkeyServer) -> Iterator[None]:
    """One server for all laws; the processes that a law starts find it in their environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(URL_VARIABLE, keelbolt_valkey.url)
        yield


def make(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    return open_storage(f"{os.environ[URL_VARIABLE]}?namespace={place.name}", declare=declare)


@cache
def small_server() -> str:
    """Return the URL of a server with little memory; the server stops with this process."""
    server = own_valkey(settings={"maxmemory": "24mb", "maxmemory-policy": "noeviction"})
    atexit.register(server.__exit__, None, None, None)
    return server.__enter__().url


def make_small(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    with redis.Redis.from_url(small_server()) as client:
        client.execute_command("FLUSHALL", "SYNC")  # by default, Valkey frees the memory later
    return open_storage(f"{small_server()}?namespace={place.name}", declare=declare)


def make_relaxed(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    return open_storage(f"{os.environ[URL_VARIABLE]}?namespace={place.name}", durability="relaxed", declare=declare)


async def discard(place: KernelPlace) -> None:
    with redis.Redis.from_url(os.environ[URL_VARIABLE]) as client:
        for key in client.scan_iter(f"{place.name}:*", count=1000):
            client.unlink(key)


DURABLE = KernelSubject("Redis, durable", make, persistent=True, shared=True, discard=discard, small=make_small)
RELAXED = KernelSubject("Redis, relaxed", make_relaxed, persistent=True, shared=True, discard=discard)

test_durable = kernel_laws(DURABLE)
test_relaxed = kernel_laws(RELAXED)


def test_random_histories(full: bool) -> None:
    """Random histories, compared with an independent model."""
    check_histories(DURABLE, steps=20_000 if full else 2000)
