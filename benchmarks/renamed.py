"""Records the commits of a program, to repeat them with other names: the same bytes, without the program."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from msgspec import Struct
from msgspec.structs import replace

from keelbolt.kernel import Kernel, Operation, Receipt

T = TypeVar("T")


@contextmanager
def recorded_commits(kernel: Kernel) -> Iterator[list[tuple[Operation, ...]]]:
    """Record the operations of each commit in the block."""
    commits: list[tuple[Operation, ...]] = []
    commit = kernel.commit

    def listening(partition: str, *operations: Operation) -> Awaitable[Receipt]:
        commits.append(operations)
        return commit(partition, *operations)

    with patch.object(kernel, "commit", listening):
        yield commits


def renamed(value: T, names: Mapping[str, str]) -> T:
    """Return the same operations with other names in all texts; old and new names have equal length."""
    return _renamed(value, names)  # type: ignore[no-any-return]


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    match value:
        case str():
            for old, new in names.items():
                value = value.replace(old, new)
            return value
        case bytes():
            for old, new in names.items():
                value = value.replace(old.encode(), new.encode())
            return value
        case tuple():
            return tuple([_renamed(each, names) for each in value])
        case Mapping():
            return {key: _renamed(each, names) for key, each in value.items()}
        case Struct():
            changes = {name: _renamed(getattr(value, name), names) for name in value.__struct_fields__}
            return replace(value, **changes)
        case _:
            return value
