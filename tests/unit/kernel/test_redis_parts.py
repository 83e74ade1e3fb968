"""The parts of the Redis engine that need no server: tokens, keys, addresses, the library."""

from __future__ import annotations

import math
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import InvalidValue, StorageBroken, StorageBusy, StorageFull, StorageUnavailable, UnknownScheme
from keelbolt.kernel.keys import encode
from keelbolt.kernel.records import Scalar
from keelbolt.kernel.redis.connection import RedisAddress, address_of
from keelbolt.kernel.redis.layout import Layout
from keelbolt.kernel.redis.operations import pack_fields, token_of, unpack_fields, value_of
from keelbolt.kernel.redis.replies import failure_of
from keelbolt.kernel.redis.server import function, library

texts = st.text(alphabet=st.characters(codec=None), max_size=400)
scalars = st.one_of(
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)


@given(scalars)
def test_a_token_round_trips(value: Scalar) -> None:
    back = value_of(token_of(value))
    assert back == value
    assert type(back) is type(value)
    if isinstance(value, float) and isinstance(back, float):
        assert math.copysign(1, back) == math.copysign(1, value)


@given(st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=40)))
def test_a_short_token_is_the_order_preserving_encoding(value: Scalar) -> None:
    assert token_of(value) == encode((value,))


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_.-]{0,9}", fullmatch=True), scalars, max_size=6))
def test_fields_come_back(fields: dict[str, Scalar]) -> None:
    assert dict(unpack_fields(pack_fields(fields))) == fields


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60))
def test_any_partition_is_one_hash_tag(partition: str) -> None:
    layout = Layout("n")
    base = layout.base(partition)
    assert base.count(b"{") == base.count(b"}") == 1
    assert layout.parse(base + b"r/things/a}:b") == (partition, b"r/things/a}:b")
    assert base != layout.registry


def test_a_key_of_the_registry_belongs_to_no_partition() -> None:
    layout = Layout("n")
    assert layout.parse(layout.registry + b"catalog") is None


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", RedisAddress(host="h")),
        ("redis://h:1/3", RedisAddress(host="h", port=1, database=3)),
        ("redis://u:p%40@h", RedisAddress(host="h", username="u", password="p@")),
        ("redis://:p@h/0", RedisAddress(host="h", password="p")),
        ("rediss://h", RedisAddress(host="h", tls=True)),
        ("valkeys://h", RedisAddress(host="h", tls=True)),
        ("unix:///run/s%20t", RedisAddress(path="/run/s t")),
        ("redis://[::1]:7/1", RedisAddress(host="::1", port=7, database=1)),
    ],
)
def test_addresses(url: str, address: RedisAddress) -> None:
    assert address_of(urlsplit(url), {}) == address
    assert "p@" not in repr(address_of(urlsplit(url), {}))


@pytest.mark.parametrize("url", ["redis://h:x", "unix://", "redis://h/1#f"])
def test_bad_addresses(url: str) -> None:
    with pytest.raises(UnknownScheme):
        address_of(urlsplit(url), {})


def test_a_database_is_a_number() -> None:
    with pytest.raises(InvalidValue):
        address_of(urlsplit("redis://h/name"), {})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OOM command not allowed", StorageFull),
        ("MISCONF Errors writing to the AOF file: No space left on device", StorageFull),
        ("MISCONF Errors writing to the AOF file: Input/output error", StorageBroken),
        ("NOREPLICAS Not enough good replicas to write.", StorageBusy),
        ("LOADING the dataset", StorageBusy),
        ("READONLY You can't write", StorageUnavailable),
        ("WRONGTYPE secret key name", StorageBroken),
    ],
)
def test_server_errors_are_translated(text: str, kind: type[Exception]) -> None:
    error = failure_of(text)
    assert type(error) is kind
    assert text not in str(error)


def test_the_library_is_named_after_its_contents() -> None:
    name, source = library()
    assert source.startswith(f"#!lua name={name}\n".encode())
    assert b"%PREFIX%" not in source
    assert function("commit") == f"{name}_commit".encode()
