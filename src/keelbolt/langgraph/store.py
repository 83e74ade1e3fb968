"""LangGraph's long-term memory on Keelbolt's storage."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from math import sqrt
from typing import Any

import msgspec
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from keelbolt.errors import CommitRefused, SchemaTooNew, StorageCorrupt
from keelbolt.kernel import Delete, Kernel, Operation, Put, Query, Record, Replace, Scope
from keelbolt.kernel.connection import ConnectionOwner, KernelConnection
from keelbolt.langgraph.families import ITEMS, STORE_FAMILIES, partition_of
from keelbolt.state import codec
from keelbolt.state.names import joined

FORMAT = 1
PAGE = 200
_SORTED = 190  # strings are ordered by their first 200 bytes

Namespace = tuple[str, ...]
Vectors = dict[str, list[float]]


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    format: int
    namespace: Namespace
    key: str
    value: bytes
    created: float
    updated: float
    ttl: float | None  # minutes
    vectors: dict[str, bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


@dataclass(slots=True)
class _Found:
    """Results of a batch's reads, and the candidates of its semantic searches."""

    results: list[Result]
    candidates: dict[int, list[_Stored]] = field(default_factory=dict)


class KeelboltStore(ConnectionOwner, BaseStore):
    """Stores items by namespace and key on SQLite, PostgreSQL, Redis/Valkey or in memory.

        store = KeelboltStore("sqlite:///agent.db", index={"dims": 1536, "embed": embed, "fields": ["text"]})
        graph = builder.compile(checkpointer=saver, store=store)

    ``storage`` is a URL, which is opened at the first call, or an open storage. ``index`` enables semantic search,
    which compares the query with every item under the namespace prefix. ``ttl`` sets the default expiry, in minutes.
    The puts of one batch are one commit.
    """

    supports_ttl = True

    def __init__(
        self,
        storage: str | Kernel,
        *,
        tenant: str = "default",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self.ttl_config = ttl
        self.index_config = index
        self.embeddings = ensure_embeddings(index["embed"]) if index is not None else None
        self._fields = list((index or {}).get("fields") or ["$"])
        self._partition = partition_of(tenant)
        self._connection = KernelConnection(storage, STORE_FAMILIES)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        texts, queries = self._texts(ops), _queries(ops)
        vectors: list[list[float]] = []
        asked: dict[str, list[float]] = {}
        if self.embeddings is not None:
            vectors = self.embeddings.embed_documents([text for _, _, text in texts]) if texts else []
            asked = {query: self.embeddings.embed_query(query) for query in queries}
        run = partial(self._run, ops=ops, vectors=_by_operation(texts, vectors), asked=asked)
        return _ranked(ops, self._connection.call_sync(run), asked)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        texts, queries = self._texts(ops), _queries(ops)
        vectors: list[list[float]] = []
        asked: dict[str, list[float]] = {}
        if self.embeddings is not None:
            vectors = await self.embeddings.aembed_documents([text for _, _, text in texts]) if texts else []
            found = await asyncio.gather(*[self.embeddings.aembed_query(query) for query in queries])
            asked = dict(zip(queries, found, strict=True))
        run = partial(self._run, ops=ops, vectors=_by_operation(texts, vectors), asked=asked)
        return _ranked(ops, await self._connection.call(run), asked)

    # ------------------------------------------------------------------------------------------- in the kernel's loop

    async def _run(
        self, kernel: Kernel, ops: Sequence[Op], vectors: Mapping[int, Vectors], asked: Mapping[str, list[float]]
    ) -> _Found:
        """Read first, then write: operations do not see the puts of their own batch."""
        scope = kernel.scoped(self._partition)
        found = _Found([None] * len(ops))
        puts: dict[str, tuple[PutOp, Vectors]] = {}  # the last put of a key wins
        for number, op in enumerate(ops):
            if isinstance(op, GetOp):
                stored = await self._get(scope, op)
                found.results[number] = _item(stored) if stored is not None else None
            elif isinstance(op, SearchOp):
                if op.query and op.query in asked:
                    found.candidates[number] = await self._search(scope, op, None)
                else:
                    some = (await self._search(scope, op, op.offset + op.limit))[op.offset :]
                    found.results[number] = [_search_item(stored, None) for stored in some]
            elif isinstance(op, ListNamespacesOp):
                found.results[number] = await _namespaces(scope, op)
            elif isinstance(op, PutOp):
                key = joined(*op.namespace, op.key)
                puts.pop(key, None)
                puts[key] = op, vectors.get(number, {})
            else:
                raise ValueError(f"Unknown operation type: {type(op)}")  # noqa: TRY004  (as LangGraph's stores)
        if puts:
            await self._put(scope, puts)
        return found

    async def _get(self, scope: Scope, op: GetOp) -> _Stored | None:
        record = await scope.get(ITEMS, joined(*op.namespace, op.key))
        if record is None:
            return None
        stored = _load(record)
        if op.refresh_ttl:
            await _refresh(scope, record, stored)
        return stored

    async def _search(self, scope: Scope, op: SearchOp, limit: int | None) -> list[_Stored]:
        """Return the matching items in the order of namespace and key; at most ``limit``."""
        found: list[_Stored] = []
        async for record in scope.scan(_under(op.namespace_prefix), page=PAGE):
            stored = _load(record)
            if stored.namespace[: len(op.namespace_prefix)] != tuple(op.namespace_prefix):
                continue
            if op.filter and not _matches(codec.decode(stored.value), op.filter):
                continue
            found.append(stored)
            if op.refresh_ttl:
                await _refresh(scope, record, stored)
            if limit is not None and len(found) >= limit:
                break
        return found

    async def _put(self, scope: Scope, puts: Mapping[str, tuple[PutOp, Vectors]]) -> None:
        now = datetime.now(UTC).timestamp()
        operations: list[Operation] = []
        for (key, (op, vectors)), before in zip(puts.items(), await scope.get_many(ITEMS, puts), strict=True):
            if op.value is None:
                operations.append(Delete(ITEMS, key))
                continue
            created = _load(before).created if before is not None else now
            packed = {path: struct.pack(f"<{len(vector)}f", *vector) for path, vector in vectors.items()}
            value = codec.encode(dict(op.value), _refuse)
            stored = _Stored(FORMAT, tuple(op.namespace), op.key, value, created, now, op.ttl, packed)
            fields = {"path": _path(op.namespace)}
            seconds = op.ttl * 60 if op.ttl is not None else None
            operations.append(Put(ITEMS, key, _encode(stored), fields, expires_in=seconds))
        await scope.commit(*operations)

    def _texts(self, ops: Sequence[Op]) -> list[tuple[int, str, str]]:
        """Return (operation, path, text) of everything to embed."""
        texts: list[tuple[int, str, str]] = []
        if self.embeddings is None:
            return texts
        for number, op in enumerate(ops):
            if not isinstance(op, PutOp) or op.value is None or op.index is False:
                continue
            for path in self._fields if op.index is None else op.index:
                found = get_text_at_path(op.value, "$" if path == "$" else tokenize_path(path))
                for index, text in enumerate(found):
                    texts.append((number, path if len(found) == 1 else f"{path}.{index}", text))
        return texts


def _queries(ops: Sequence[Op]) -> list[str]:
    return list(dict.fromkeys(op.query for op in ops if isinstance(op, SearchOp) and op.query))


def _by_operation(texts: Sequence[tuple[int, str, str]], vectors: Sequence[list[float]]) -> dict[int, Vectors]:
    found: dict[int, Vectors] = {}
    for (number, path, _), vector in zip(texts, vectors, strict=True):
        found.setdefault(number, {})[path] = vector
    return found


def _ranked(ops: Sequence[Op], found: _Found, asked: Mapping[str, list[float]]) -> list[Result]:
    """Fill in the results of semantic searches by the best vector of each item; items without vectors come last."""
    for number, candidates in found.candidates.items():
        op = ops[number]
        assert isinstance(op, SearchOp)
        assert op.query is not None
        query = asked[op.query]
        scored = [
            (max((_cosine(query, vector) for vector in stored.vectors.values()), default=None), stored)
            for stored in candidates
        ]
        scored.sort(key=lambda pair: (pair[0] is None, -(pair[0] or 0.0)))
        some = scored[op.offset : op.offset + op.limit]
        found.results[number] = [_search_item(stored, score) for score, stored in some]
    return found.results


def _cosine(query: Sequence[float], packed: bytes) -> float:
    vector = struct.unpack(f"<{len(packed) // 4}f", packed)
    product = sum(a * b for a, b in zip(query, vector, strict=False))
    length = sqrt(sum(a * a for a in query)) * sqrt(sum(b * b for b in vector))
    return product / length if length else 0.0


async def _refresh(scope: Scope, record: Record, stored: _Stored) -> None:
    if stored.ttl is None:
        return
    write = Replace(ITEMS, record.key, record.version, record.body, record.fields, expires_in=stored.ttl * 60)
    try:
        await scope.commit(write)
    except CommitRefused:
        return  # written or deleted meanwhile


async def _namespaces(scope: Scope, op: ListNamespacesOp) -> list[Namespace]:
    conditions = op.match_conditions or ()
    prefix: list[str] = []
    for label in next((c.path for c in conditions if c.match_type == "prefix"), ()):
        if label == "*":
            break
        prefix.append(label)
    query = _under(tuple(prefix))
    found: set[Namespace] = set()
    cursor: str | None = None
    while True:
        page = await scope.find(query, limit=1, cursor=cursor)
        if not page.records:
            break
        (record,) = page.records
        found.add(_load(record).namespace)
        path = str(record.fields["path"])
        if len(path) <= _SORTED:  # skip all other items of this namespace
            query, cursor = msgspec.structs.replace(query, since=f"{path}\0"), None
            continue
        cursor = page.cursor
        if cursor is None:
            break
    matching = {ns[: op.max_depth] for ns in found if all(_fits(condition, ns) for condition in conditions)}
    return sorted(matching)[op.offset : op.offset + op.limit]


def _fits(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    if condition.match_type == "prefix":
        part = namespace[: len(path)]
    elif condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    else:
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


def _matches(value: Any, wanted: Mapping[str, Any]) -> bool:
    return all(_compare(value.get(key), expected) for key, expected in wanted.items())


def _compare(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(key.startswith("$") for key in wanted):
            return all(_operator(found, name, operand) for name, operand in wanted.items())
        return isinstance(found, dict) and all(_compare(found.get(key), each) for key, each in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(wanted)
            and all(_compare(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)


def _operator(found: Any, name: str, operand: Any) -> bool:
    match name:
        case "$eq":
            return bool(found == operand)
        case "$ne":
            return bool(found != operand)
        case "$gt":
            return found is not None and float(found) > float(operand)
        case "$gte":
            return found is not None and float(found) >= float(operand)
        case "$lt":
            return found is not None and float(found) < float(operand)
        case "$lte":
            return found is not None and float(found) <= float(operand)
        case _:
            raise ValueError(f"Unsupported operator: {name}")


def _path(namespace: Sequence[str]) -> str:
    return "".join(f"{joined(label)}/" for label in namespace)


def _under(prefix: Sequence[str]) -> Query:
    """Query all items under a namespace prefix; for a very long prefix also others, which the caller must skip."""
    path = _path(prefix)[:_SORTED]
    if not path:
        return Query(ITEMS, order="path")
    return Query(ITEMS, order="path", since=path, until=path[:-1] + chr(ord(path[-1]) + 1))


def _load(record: Record) -> _Stored:
    try:
        stored = _decode(record.body)
    except msgspec.DecodeError as error:
        raise StorageCorrupt from error
    if stored.format > FORMAT:
        raise SchemaTooNew("a newer Keelbolt wrote this item; use that version")
    return stored


def _item(stored: _Stored) -> Item:
    return Item(
        value=codec.decode(stored.value),
        key=stored.key,
        namespace=stored.namespace,
        created_at=datetime.fromtimestamp(stored.created, UTC),
        updated_at=datetime.fromtimestamp(stored.updated, UTC),
    )


def _search_item(stored: _Stored, score: float | None) -> SearchItem:
    return SearchItem(
        namespace=stored.namespace,
        key=stored.key,
        value=codec.decode(stored.value),
        created_at=datetime.fromtimestamp(stored.created, UTC),
        updated_at=datetime.fromtimestamp(stored.updated, UTC),
        score=score,
    )


def _refuse(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} can't be stored in an item; use JSON values")
