"""Access to the whole store of the memory engine, for the copier."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

from keelbolt.kernel.declarations import CheckedCollection, dump_fields
from keelbolt.kernel.memory.content import Content
from keelbolt.kernel.transfer.ports import (
    PAGE_BYTES,
    PAGE_ROWS,
    Cursor,
    MarkState,
    RowPage,
    Source,
    Transfer,
    WriteBlock,
    changed_mark,
)
from keelbolt.kernel.transfer.rows import (
    TABLES,
    BlobRow,
    ChunkRow,
    CollectionRow,
    EntryRow,
    HoldingRow,
    PartitionRow,
    RecordRow,
    Row,
    StreamRow,
    Table,
    item_row,
)


class MemorySource(Source):
    """A snapshot of the store. States are replaced and never modified, so lists of them are enough."""

    def __init__(self, content: Content) -> None:
        self._now = now = content.now()
        ledger = content.ledger
        self._fence = ledger.last_fence
        names = {(stream, seq): name for (stream, name), seq in ledger.dedupes.items()}
        self._rows: dict[Table, list[Row]] = {
            "collection": [CollectionRow(name, shape.dump()) for name, shape in content.declared.shapes.items()],
            "partition": [PartitionRow(name) for name in content.names],
            "record": [
                RecordRow(
                    *key,
                    state.version,
                    dump_fields(state.fields),
                    None if state.expires_at is None else state.expires_at - now,
                    state.body or b"",
                )
                for key, state in ledger.records.items()
                if state is not None
            ],
            "stream": [StreamRow(*key, s.head, s.floor) for key, s in ledger.streams.items() if s is not None],
            "entry": [
                EntryRow(*key, entry.seq, entry.at, entry.kind, entry.data, names.get((s.id, entry.seq)))
                for key, s in ledger.streams.items()
                if s is not None
                for entry in content.entries.get(s.id, ())
            ],
            "work": [
                item_row(
                    key,
                    row.state,
                    row.lane,
                    row.priority,
                    row.ready_at - now,
                    row.attempt,
                    row.max_attempts,
                    row.fence,
                    None if row.again_at is None else row.again_at - now,
                    row.reason,
                )
                for key, row in ledger.work.items()
                if row is not None
            ],
        }
        self._rows |= self._blobs(content)

    def _blobs(self, content: Content) -> dict[Table, list[Row]]:
        blobs: list[Row] = []
        chunks: list[Row] = []
        holders: list[Row] = []
        for (partition, digest), number in content.blobs.items():
            upload = content.uploads[number]
            held = content.holders.get((partition, digest))
            size = sum(len(data) for data, _ in upload.chunks)
            blobs.append(BlobRow(partition, digest, size, None if held else upload.expires_at - self._now))
            chunks += [ChunkRow(partition, digest, at, data) for at, (data, _) in enumerate(upload.chunks)]
            holders += [HoldingRow(partition, digest, holder) for holder in held or ()]
        return {"blob": blobs, "chunk": chunks, "holding": holders}

    async def totals(self) -> dict[Table, int]:
        return {table: len(self._rows[table]) for table in TABLES}

    async def last_fence(self) -> int:
        return self._fence

    async def pages(self, table: Table, after: Cursor | None = None) -> AsyncIterator[RowPage]:
        rows = self._rows[table]
        start = int(after[0]) if after else 0
        for page in _pages(rows[start:]):
            start += len(page)
            yield RowPage(page, [start])


def _pages(rows: Sequence[Row]) -> Iterator[list[Row]]:
    page: list[Row] = []
    size = 0
    for row in rows:
        page.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if len(page) == PAGE_ROWS or size >= PAGE_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page


class MemoryTransfer(Transfer):
    def __init__(self, content: Content) -> None:
        self._content = content
        self._declared: dict[str, CheckedCollection] = {}

    def place(self) -> str:
        return f"memory:{id(self._content):x}"

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Source]:
        yield MemorySource(self._content)

    async def holds_data(self) -> bool:
        return self._content.holds_data()

    async def put(self, table: Table, rows: Sequence[Row], note: str) -> None:  # noqa: ARG002
        self._content.put(rows)
        self._content.note = note

    async def raise_fence(self, fence: int) -> None:
        self._content.ledger.last_fence = max(self._content.ledger.last_fence, fence)

    async def wipe(self) -> None:
        self._declared = dict(self._content.declared.shapes)
        self._content.wipe()

    async def note(self) -> str | None:
        return self._content.note

    async def set_note(self, note: str) -> None:
        self._content.note = note

    async def mark(self) -> WriteBlock | None:
        mark = self._content.mark
        return mark if mark is not None and not mark.over(self._content.now()) else None

    async def set_mark(
        self, state: MarkState | None, copy: str, *, seconds: float | None = None, if_held: bool = False
    ) -> None:
        content = self._content
        content.mark = changed_mark(content.mark, state, copy, now=content.now(), seconds=seconds, if_held=if_held)

    async def release(self) -> None:
        for name, shape in self._declared.items():
            if name not in self._content.declared.shapes:
                self._content.declared.shapes[name] = shape
                self._content.declare(shape)
        self._content.note = self._content.mark = None
