"""Server-sent events are parsed wherever the bytes are split."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.client.http import Parser, ServerEvent
from keelbolt.errors import A2AResponseError
from keelbolt.server.sse import HEARTBEAT, event, retry


def parsed(*blocks: bytes, limit: int = 10_000) -> list[ServerEvent]:
    parser = Parser(limit)
    return [event for block in blocks for event in parser.feed(block)]


DATA = st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b"") or b"x")


@given(st.lists(st.tuples(DATA, st.integers(0, 10**9)), max_size=8), st.data())
def test_the_servers_output_is_parsed_for_any_pieces(events: list[tuple[bytes, int]], data: st.DataObject) -> None:
    whole = b"".join(event(body, seq=seq) + HEARTBEAT for body, seq in events)
    pieces, rest = [], whole
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces.append(rest[:size])
        rest = rest[size:]
    assert [(event.data, event.id) for event in parsed(*pieces)] == [(body, str(seq)) for body, seq in events]


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_parsed_the_same_in_one_piece_and_in_two(whole: bytes, cut: int) -> None:
    assert parsed(whole + b"\n\n") == parsed(whole[:cut], whole[cut:] + b"\n\n")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_line_ends(end: bytes) -> None:
    text = end.join(
        [b"\xef\xbb\xbf: a comment", b"id: 7", b"event: x", b"data: a", b"data:b", b"unknown: y", b"", b"", b""]
    )
    wanted = [ServerEvent(b"a\nb", "7", "x")]
    assert parsed(text + b"z") == wanted
    assert [event for byte in [text + b"z"] for event in parsed(*(bytes([one]) for one in byte))] == wanted


def test_an_incomplete_event_is_ignored() -> None:
    assert parsed(b"id: 1\ndata: whole\n\nid: 2\ndata: half\n") == [ServerEvent(b"whole", "1")]


def test_an_id_persists_and_an_event_without_data_is_ignored() -> None:
    assert [event.id for event in parsed(b"id: 1\n\ndata: a\n\ndata: b\n\nid\ndata: c\n\n")] == ["1", "1", ""]
    assert parsed(b"id: 1\0\ndata: a\n\n") == [ServerEvent(b"a")]


def test_the_server_may_set_the_retry_delay() -> None:
    parser = Parser(100)
    assert list(parser.feed(retry(1500) + b"retry: soon\n\n")) == []
    assert parser.retry_seconds == 1.5


@pytest.mark.parametrize("blocks", [[b"data: " + b"x" * 200], [b"data: xxxxxxxxx\n"] * 30, [b"y" * 40] * 4])
def test_the_size_of_an_event_is_limited(blocks: list[bytes]) -> None:
    with pytest.raises(A2AResponseError):
        parsed(*blocks, limit=100)


def test_a_small_block_of_a_large_event_costs_little() -> None:
    """A block is not copied together with all blocks before it, so that a large event in small blocks stays cheap."""
    parser = Parser(10_000_000)
    assert list(parser.feed(b"data: " + b"x" * 4_000_000)) == []
    block, sizes = b"y" * 100, []
    tracemalloc.start()
    try:
        for _ in range(20):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            assert list(parser.feed(block)) == []
            sizes.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert sorted(sizes)[-2] < 100_000, "at most one block made the buffer grow"
    (found,) = parser.feed(b"\n\n")
    assert len(found.data) == 4_000_000 + 20 * len(block)


def test_a_line_end_that_is_split_between_blocks_is_one_line_end() -> None:
    assert parsed(b"data: a\r", b"", b"\ndata: b\r", b"\n\r", b"\n") == [ServerEvent(b"a\nb")]
    assert parsed(b"\xef\xbb", b"\xbfdata: a\r", b"\r") == [ServerEvent(b"a")]
