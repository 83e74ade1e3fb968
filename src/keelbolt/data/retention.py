"""Retention policies: for how long, and how many records, each face keeps. All faces use the same notation.

    completed=30d  log=1h  events=30d  events=1000  threads=52w

An age is 90s, 15m, 12h, 30d or 4w; a number is the number of newest records to keep. A face declares a policy class
with a field for each kind of data that it can remove: seconds under its name, numbers under ``max_`` and its name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Self

from keelbolt.errors import InvalidValue
from keelbolt.kernel import Kernel, Query, Record

if TYPE_CHECKING:
    from keelbolt.data.families import Face, Family

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
NUMBER = "max_"
_DIGITS = 15


def minutes(count: float) -> float:
    return count * UNITS["m"]


def hours(count: float) -> float:
    return count * UNITS["h"]


def days(count: float) -> float:
    return count * UNITS["d"]


def read_age(text: str) -> float:
    """Return the seconds of ``90s``, ``15m``, ``12h``, ``30d`` or ``4w``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip(), re.ASCII)
    if found is None:
        raise InvalidValue(f"{text!r} is not an age; write 90s, 15m, 12h, 30d or 4w")
    return float(found[1]) * UNITS[found[2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FacePolicy:
    """Base class of the policies of faces; subclasses declare the fields. None means no limit."""

    face: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, counted = getattr(self, field.name), field.name.startswith(NUMBER)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int if counted else int | float) or not value >= 0:
                what = "a number" if counted else "a number of seconds"
                raise InvalidValue(f"{field.name} must be {what}, 0 or more, not {value!r}")

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Parse a policy such as ``completed=30d``, ``updates=10000``; a text may hold several limits."""
        (found,) = parse_policies(texts, [cls], empty=True)
        assert isinstance(found, cls)
        return found


def parse_policies(texts: Iterable[str], kinds: Sequence[type[FacePolicy]], *, empty: bool = False) -> list[FacePolicy]:
    """Parse the policies in these texts, in the order of ``kinds``. With ``empty``, include policies without limits."""
    limits: dict[type[FacePolicy], dict[str, float]] = {}
    for word in _words(texts):
        name, _, limit = word.partition("=")
        counted = limit.isascii() and limit.isdecimal() and len(limit) <= _DIGITS
        field = f"{NUMBER}{name}" if counted else name
        kind = next((kind for kind in kinds if not name.startswith(NUMBER) and field in _names(kind)), None)
        if kind is None:
            raise InvalidValue(_explain(word, kinds))
        limits.setdefault(kind, {})[field] = int(limit) if counted else read_age(limit)
    return [kind(**limits.get(kind, {})) for kind in kinds if empty or kind in limits]


async def retain_old(
    kernel: Kernel,
    face: Face,
    family: Family,
    seconds: float | None,
    *,
    dry: bool,
    only: Callable[[Record], bool] = lambda _record: True,
) -> dict[str, int]:
    """Erase the subjects of this family whose age exceeds ``seconds``, in all partitions; ``dry`` only counts.

    A subject that changes meanwhile is kept. ``only`` filters the records.
    """
    from keelbolt.data.erasing import erase_target  # noqa: PLC0415 - erasing imports families, which needs this module
    from keelbolt.data.families import SubjectLocation, age_of_seconds  # noqa: PLC0415

    if seconds is None:
        return {}
    assert family.age is not None
    assert family.subject is not None
    await kernel.declare(*face.collections())
    until = age_of_seconds(family.collection.fields[family.age], time.time() - seconds)
    count = 0
    async for scope in face.scopes(kernel):
        async for record in scope.scan(Query(family.name, order=family.age, until=until)):
            if not only(record):
                continue
            target = SubjectLocation(scope, family.subject, family.ref_of(record))
            if dry or await erase_target(face, target, version=record.version):
                count += 1
    return {family.title: count} if count else {}


def _words(texts: Iterable[str]) -> Iterator[str]:
    return (word for text in texts for word in re.split(r"[\s,]+", text.strip()) if word)


def _names(kind: type[FacePolicy]) -> list[str]:
    return [field.name for field in fields(kind)]


def _explain(word: str, kinds: Iterable[type[FacePolicy]]) -> str:
    names = [name for kind in kinds for name in _names(kind)]
    ages = [name for name in names if not name.startswith(NUMBER)]
    numbers = [name.removeprefix(NUMBER) for name in names if name.startswith(NUMBER)]
    counted = f" or NAME=NUMBER, as in {numbers[0]}=10000; numbers: {', '.join(numbers)}" if numbers else ""
    return f"{word!r} is not NAME=AGE, as in {ages[0]}=30d; ages: {', '.join(ages)}{counted}"
