"""The indexes and counters of the memory engine."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator

from keelbolt.storage.declared import Shape
from keelbolt.storage.ledger import Key, RecordState


class Indexes:
    """Sorted index entries of each collection, and totals per (collection, counter number, group)."""

    def __init__(self) -> None:
        self._entries: dict[str, list[list[bytes]]] = {}  # by collection, then by the number of the index
        self._keys: dict[str, list[dict[bytes, Key]]] = {}  # the record of each entry
        self._places: dict[Key, tuple[list[bytes], list[bytes]]] = {}  # the entries and groups of each record
        self.totals: Counter[tuple[str, int, bytes]] = Counter()

    def change(self, shape: Shape, key: Key, old: RecordState | None, new: RecordState | None) -> None:
        """Move a record from its old places to its new ones; an entry that stays the same is not touched."""
        if not shape.indexes and not shape.counters:
            return
        if old is not None and new is not None and old.fields == new.fields:
            return
        partition, collection, name = key
        before, groups_before = self._places.pop(key) if old is not None else (_NONE, _NONE)
        after, groups_after = _NONE, _NONE
        if new is not None:
            after, groups_after = shape.entries(partition, name, new.fields), shape.groups(partition, new.fields)
            self._places[key] = after, groups_after
        if collection not in self._entries:
            self._entries[collection] = [[] for _ in shape.indexes]
            self._keys[collection] = [{} for _ in shape.indexes]
        for number, (entries, keys) in enumerate(zip(self._entries[collection], self._keys[collection], strict=True)):
            gone = before[number] if before else None
            came = after[number] if after else None
            if gone == came:
                continue
            if gone is not None:
                del entries[bisect_left(entries, gone)]
                del keys[gone]
            if came is not None:
                keys[came] = key
                if not entries or came > entries[-1]:  # most are the newest
                    entries.append(came)
                else:
                    insort(entries, came)
        if groups_before != groups_after:
            for number, group in enumerate(groups_before):
                self.totals[collection, number, group] -= 1
            for number, group in enumerate(groups_after):
                self.totals[collection, number, group] += 1

    def forget(self, collection: str) -> None:
        """Drop what is known of a collection, before it is built anew."""
        self._entries.pop(collection, None)
        self._keys.pop(collection, None)
        self._places = {key: places for key, places in self._places.items() if key[1] != collection}
        for place in [place for place in self.totals if place[0] == collection]:
            del self.totals[place]

    def scan(
        self, collection: str, number: int, low: bytes, high: bytes, *, newest_first: bool
    ) -> Iterator[tuple[bytes, Key]]:
        if collection not in self._entries:
            return
        entries, keys = self._entries[collection][number], self._keys[collection][number]
        places = range(bisect_left(entries, low), bisect_left(entries, high))
        for place in reversed(places) if newest_first else places:
            yield entries[place], keys[entries[place]]


_NONE: list[bytes] = []
