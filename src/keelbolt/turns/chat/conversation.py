"""Builds the conversation of a thread for a model: messages and calls in order, each call with its result. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from itertools import count

from keelbolt.turns.chat.protocol import CallRequest, ChatMessage
from keelbolt.turns.primitives import Media, Message, SpooledArtifact, ToolCall

UNFINISHED = "This call was not finished: its turn ended first."
Texts = Mapping[int, str]


def conversation(
    messages: Iterable[Message], calls: Iterable[ToolCall], texts: Texts, *, turn: str, asked: Collection[str]
) -> list[ChatMessage]:
    """Return the entries ordered by time; the calls of one generation follow its text in one entry.

    Entries of this turn come last, even if other turns run on the thread at the same time: the model answers the
    messages of this turn (``asked``: their ids). Unfinished calls of other turns are omitted. ``texts`` has the
    results that are not plain text, by ``id()`` of the call.
    """
    entries: list[tuple[tuple[bool, datetime, int], Message | list[ToolCall]]]
    entries = [((each.id in asked or each.id.startswith(f"{turn}."), each.created_at, 0), each) for each in messages]
    groups: dict[str, list[ToolCall]] = {}
    for call in calls:
        own = call.id.startswith(f"{turn}.")
        if own or call.is_complete:
            groups.setdefault(_generation(call.id), []).append(call)
    entries += [((name.startswith(f"{turn}."), group[0].created_at, 1), group) for name, group in groups.items()]
    numbers = count()
    found: list[ChatMessage] = []
    for _, entry in sorted(entries, key=lambda pair: pair[0]):
        if isinstance(entry, Message):
            found.append(ChatMessage(entry.role, _said(entry)))
            continue
        ids = [f"call_{next(numbers)}" for _ in entry]
        requests = tuple(
            CallRequest(call.tool, json.dumps(call.args, ensure_ascii=False), name)
            for call, name in zip(entry, ids, strict=True)
        )
        if found and found[-1].role == "assistant" and not found[-1].calls:
            found[-1] = ChatMessage("assistant", found[-1].text, requests)
        else:
            found.append(ChatMessage("assistant", "", requests))
        for call, name in zip(entry, ids, strict=True):
            failed = call.is_error or not call.is_complete
            found.append(ChatMessage("tool", _result(call, texts), call_id=name, is_error=failed))
    return found


def _generation(call_id: str) -> str:
    """Return the generation of a call id, ``turn.iteration``; call ids are ``turn.iteration.number``."""
    return call_id.rpartition(".")[0] or call_id


def _said(message: Message) -> str:
    text = "" if message.content is None else str(message.content)
    files = [
        f"[attached: {', '.join(filter(None, (media.filename, media.mime_type, media.source)))}]"
        for media in message.attachments
    ]
    return "\n".join([*([text] if text else []), *files]) or "(empty)"


def _result(call: ToolCall, texts: Texts) -> str:
    if not call.is_complete:
        return UNFINISHED
    if id(call) in texts:
        return texts[id(call)]
    return described(call.results)


def described(results: object) -> str:
    """Return results as text; media are named, not included."""
    if isinstance(results, tuple):
        return "\n".join(map(described, results))
    if isinstance(results, Media):
        return f"[{results.kind}: {results.filename}, {results.mime_type}]"
    return "[text]" if isinstance(results, SpooledArtifact) else str(results)
