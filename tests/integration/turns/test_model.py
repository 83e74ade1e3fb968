"""Random histories of stores, mutates and deletes, alone and in units of work, compared with a small model."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from keelbolt.errors import TurnStorageDuplicateId, TurnStorageNotFound
from keelbolt.turns.durable import DurableStorage
from tests.integration.turns.stage import MAKE, Calls, Turn

TURNS = [Turn("one"), Turn("two"), Turn("one", thread="other"), Turn("one", tenant="b")]
KINDS = ["message", "memory", "tool_call", "thought"]
TEXTS = ["x", "y", "z"]


class _LeftEarlyError(Exception):
    pass


@dataclass
class Row:
    turn: str
    key: str
    text: str | None  # None: deleted


@dataclass
class Model:
    """Rows by owner, in the order of storing; deleted rows stay, because they hide older ones."""

    rows: dict[tuple[str, ...], list[Row]] = field(default_factory=dict)

    def of(self, turn: Turn, kind: str) -> list[Row]:
        place = (turn.tenant, kind) if kind == "memory" else (turn.tenant, turn.thread, kind)
        return self.rows.setdefault(place, [])

    def at(self, turn: Turn, kind: str, key: str) -> Row | None:
        found = [row for row in self.of(turn, kind) if row.key == key]
        if kind in ("tool_call", "thought"):
            found = [row for row in found if row.turn == turn.id] or found
        return found[-1] if found else None

    def do(self, op: str, turn: Turn, kind: str, key: str, text: str) -> type[Exception] | None:
        """Change the model; return the expected error, if any."""
        row = self.at(turn, kind, key)
        if op == "store":
            own = row is not None and (kind in ("message", "memory") or row.turn == turn.id)
            if own and row is not None and row.text is not None:
                return None if row.text == text else TurnStorageDuplicateId
            if own and row is not None:
                self.of(turn, kind).remove(row)
            self.of(turn, kind).append(Row(turn.id, key, text))
        elif row is None or row.text is None:
            return TurnStorageNotFound if op == "mutate" else None
        else:
            row.text = text if op == "mutate" else None
        return None

    def copy(self) -> Model:
        return Model({place: [Row(row.turn, row.key, row.text) for row in rows] for place, rows in self.rows.items()})


def make(kind: str, key: str, text: str) -> Any:
    return MAKE[kind](key, args={"a": text}) if kind == "tool_call" else MAKE[kind](key, content=text)


def comparable(kind: str, value: Any) -> tuple[str, str]:
    return value.id, value.args["a"] if kind == "tool_call" else str(value.content)


@pytest.mark.parametrize("seed", range(4))
async def test_random_histories(storage: DurableStorage, seed: int, full: bool) -> None:
    chance = random.Random(seed)
    model = Model()
    callbacks = storage.callbacks()
    calls = {id(turn): Calls(callbacks, turn) for turn in TURNS}

    async def step(turn: Turn, model: Model) -> type[Exception] | None:
        op, kind = chance.choice(["store", "store", "mutate", "delete"]), chance.choice(KINDS)
        key, text = f"{kind}-{chance.randrange(4)}", chance.choice(TEXTS)
        expected = model.do(op, turn, kind, key, text)
        given = key if op == "delete" else make(kind, key, text)
        if expected is TurnStorageNotFound:
            with pytest.raises(expected):
                await calls[id(turn)].do(op, kind, given)
            return None
        await calls[id(turn)].do(op, kind, given)  # within a unit a duplicate may be found only at its end
        return expected

    for _ in range(400 if full else 40):
        turn = chance.choice(TURNS)
        draft, expected, done = model.copy(), None, False
        with contextlib.suppress(_LeftEarlyError, TurnStorageDuplicateId):
            async with storage.unit_of_work(turn):
                for _ in range(chance.randrange(1, 6)):
                    expected = await step(turn, draft)
                    if expected is not None:
                        break
                if chance.random() < 0.2:
                    raise _LeftEarlyError
            done = True
        assert expected is None or not done, "a duplicate was taken"
        if done:
            model = draft
        for each in TURNS:
            for kind in KINDS:
                wanted = [(row.key, row.text) for row in model.of(each, kind) if row.text is not None]
                found = [comparable(kind, value) for value in await calls[id(each)].fetch(kind)]
                assert found == wanted, (each, kind)
