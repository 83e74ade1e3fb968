"""The indexes and counters of the memory engine."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator

from keelbolt.storage.declared import Shape
from keelbolt.storage.ledger import Key, RecordState


class Indexes:
    """Sorted index entries per (collection, index number), and totals per (collection, counter number, group)."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], list[bytes]] = {}
        self._keys: dict[tuple[str, int, bytes], Key] = {}
        self._places: dict[Key, tuple[list[bytes], list[bytes]]] = {}  # what each record's entries and groups are
        self.totals: Counter[tuple[str, int, bytes]] = Counter()

    def change(self, shape: Shape, key: Key, old: RecordState | None, new: RecordState | None) -> None:
        """Move a record from its old places to its new ones."""
        if not shape.indexes and not shape.counters:
            return
        if old is not None and new is not None and old.fields == new.fields:
            return
        partition, collection, name = key
        if old is not None:
            old_entries, old_groups = self._places.pop(key)
            for number, entry in enumerate(old_entries):
                entries = self._entries[collection, number]
                del entries[bisect_left(entries, entry)]
                del self._keys[collection, number, entry]
            for number, group in enumerate(old_groups):
                self.totals[collection, number, group] -= 1
        if new is not None:
            places = self._places[key] = shape.entries(partition, name, new.fields), shape.groups(partition, new.fields)
            for number, entry in enumerate(places[0]):
                place = (collection, number)
                entries = self._entries.get(place) or self._entries.setdefault(place, [])
                if entries and entry > entries[-1]:  # most are the newest
                    entries.append(entry)
                else:
                    insort(entries, entry)
                self._keys[collection, number, entry] = key
            for number, group in enumerate(places[1]):
                self.totals[collection, number, group] += 1

    def forget(self, collection: str) -> None:
        """Drop what is known of a collection, before it is built anew."""
        self._entries = {place: entries for place, entries in self._entries.items() if place[0] != collection}
        self._keys = {place: key for place, key in self._keys.items() if place[0] != collection}
        self._places = {key: places for key, places in self._places.items() if key[1] != collection}
        for place in [place for place in self.totals if place[0] == collection]:
            del self.totals[place]

    def scan(
        self, collection: str, number: int, low: bytes, high: bytes, *, newest_first: bool
    ) -> Iterator[tuple[bytes, Key]]:
        entries = self._entries.get((collection, number), [])
        places = range(bisect_left(entries, low), bisect_left(entries, high))
        for place in reversed(places) if newest_first else places:
            yield entries[place], self._keys[collection, number, entries[place]]
