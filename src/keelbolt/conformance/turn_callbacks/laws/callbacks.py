"""The 27 callbacks exist and can be called; the conduits pass bytes."""

from __future__ import annotations

from typing import Any

from keelbolt.conformance.expect import broken, equal, expect
from keelbolt.conformance.turn_callbacks.subject import (
    FETCH,
    TurnCallbacksCase,
    content,
    fetch,
    law,
    message,
    picture,
    pieces,
    retrievable,
)
from keelbolt.errors import InvalidTurnRunnerConfig
from keelbolt.turns.primitives import SpooledArtifact
from keelbolt.turns.readers import answer, is_media_reader, is_spool_reader
from keelbolt.turns.runner import TurnRunner

TEXT = "one\ntwo\r\n\u2028three\x0b\n"
LARGE = b"a line of some text\n" * 40_000


@law()
async def bytes_can_be_read_at_once(case: TurnCallbacksCase) -> None:
    """A conduit returns a reader of exactly the bytes that it got: str as UTF-8, bytes, or a stream."""
    turn = case.turn()
    forms: list[tuple[Any, bytes]] = [
        ("héllo", "héllo".encode()),
        (b"\x00\xff\n", b"\x00\xff\n"),
        (bytearray(b"abc"), b"abc"),
        (pieces(LARGE, 10_000), LARGE),
    ]
    for number, (given, wanted) in enumerate(forms):
        reader = await turn.store_media_bytes(f"x{number}", given)
        expect(is_media_reader(reader), f"{type(reader).__name__} is no media reader")
        for _ in range(2):
            equal(await content(reader), wanted, "the media bytes")
        length = await answer(reader.byte_length())
        expect(length in (None, len(wanted)), f"byte_length: expected {len(wanted)} or None, found {length}")


@law()
async def streams_are_stored_completely(case: TurnCallbacksCase) -> None:
    """A stream is stored to its last byte, with pieces of any size."""
    turn = case.turn()
    for size in (1000, 65536, len(LARGE)):
        reader = await turn.store_retrievable_bytes(f"s{size}", pieces(LARGE, size))
        equal(await answer(reader.byte_length()), len(LARGE), f"the length of a stream in pieces of {size}")
        equal(await content(reader) == LARGE, True, "whether the text is the same")
        media = await turn.store_media_bytes(f"s{size}", pieces(LARGE, size))
        equal(len(await content(media)), len(LARGE), f"the length of media in pieces of {size}")


@law()
async def lines_end_at_line_feeds_only(case: TurnCallbacksCase) -> None:
    """A spool reader counts lines by line feeds alone, and returns None for a line outside of them."""
    turn = case.turn()
    for text, lines in (("", []), ("a", ["a"]), ("a\nb\n", ["a", "b", ""]), (TEXT, TEXT.split("\n"))):
        reader = await turn.store_retrievable_bytes("text", text)
        expect(is_spool_reader(reader), f"{type(reader).__name__} is no spool reader")
        equal(await answer(reader.line_count()), len(lines), f"the number of lines of {text!r}")
        found = [await answer(reader.line(index)) for index in range(-1, len(lines) + 1)]
        equal(found, [None, *lines, None], f"the lines of {text!r}, and those before and after")
        equal(await answer(reader.read_all()), text, "the whole text")
        equal(await answer(reader.byte_length()), len(text.encode()), "the number of bytes")


@law()
async def bytes_are_read_through_the_fetched_value(case: TurnCallbacksCase) -> None:
    """Bytes written by one turn are read through the value that a later turn fetches."""
    turn = case.turn()
    spools = [await turn.store_retrievable_bytes(f"x{number}", f"text {number}\n" * 1000) for number in range(3)]
    for number, spool in enumerate(spools):
        await turn.store_retrievable(retrievable(f"r{number}", SpooledArtifact(spool)))
    found = await fetch(case.turn(), "retrievable")
    texts = [await value.content_string() for value in found]
    equal(texts, [f"text {number}\n" * 1000 for number in range(3)], "the texts")
    reader = await turn.store_media_bytes("x", b"media")
    await turn.store_message(message("m", attachments=[picture(reader)]))
    [stored] = await fetch(case.turn(), "message")
    equal(await stored.attachments[0].as_bytes(), b"media", "the bytes of the attachment")


@law()
async def a_reader_is_not_changed_by_a_later_write(case: TurnCallbacksCase) -> None:
    """A reader reads the bytes that it was returned for, also after another write of the same id."""
    turn = case.turn()
    old = await turn.store_retrievable_bytes("x", "old")
    new = await turn.store_retrievable_bytes("x", "the new one")
    equal(await content(old), b"old", "the bytes of the old reader")
    equal(await content(new), b"the new one", "the bytes of the new reader")


# ---------------------------------------------------------------------------------------------------------------- shape


async def _execute(_ctx: object, _helpers: object) -> None:
    return None


@law()
async def all_callbacks_exist(case: TurnCallbacksCase) -> None:
    """All 27 callbacks exist with their parameters, so that a runner can be made of them."""
    try:
        TurnRunner(executor_callback=_execute, **dict(case.callbacks))
    except InvalidTurnRunnerConfig as wrong:
        broken(str(wrong))


@law()
async def a_new_adapter_is_empty(case: TurnCallbacksCase) -> None:
    """In a new adapter every fetch returns an empty list."""
    turn = case.turn()
    for kind, name in FETCH.items():
        equal(await fetch(turn, kind), [], f"the values of {name}")
    expect(isinstance(await turn.fetch_tools(), list | tuple), "fetch_tools_callback did not return a list")
