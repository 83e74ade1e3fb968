"""What every suite of laws shares: laws, subjects that are checked, and how they are judged.

A law is one sentence about a contract and a function that fails on what does not obey it. It is given an empty place.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from keelbolt.conformance.expect import LawBroken, show
from keelbolt.conformance.report import ConformanceReport, Finding
from keelbolt.errors import InvalidValue

LAW_SECONDS = 60.0

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)


class Checked(Protocol[P_co]):
    """What is checked: it makes places, and says which laws apply to it."""

    @property
    def name(self) -> str: ...
    def can(self, needs: Any, /) -> bool:
        """Whether laws with these needs apply."""

    def lacks(self, needs: str, /) -> str:
        """Why laws with these needs do not apply."""

    def place(self) -> AbstractAsyncContextManager[P_co]:
        """A new, empty place, removed afterwards."""


@dataclass(frozen=True, slots=True)
class Law(Generic[P]):
    """``group`` is the file it stands in, ``needs`` the capability without which it does not apply."""

    name: str
    group: str
    says: str
    needs: str
    run: Callable[[P], Awaitable[None]]

    async def check(self, subject: Checked[P]) -> None:
        """Raise, if the subject does not obey; it is given a new place."""
        try:
            async with asyncio.timeout(LAW_SECONDS), subject.place() as place:
                await self.run(place)
        except TimeoutError as error:
            message = f"no end within {LAW_SECONDS:g} s"
            raise LawBroken(message) from error

    async def judge(self, subject: Checked[P]) -> Finding:
        """What comes of it on this subject."""
        if not subject.can(self.needs):
            return Finding(self, "skipped", subject.lacks(self.needs))
        started = time.monotonic()
        try:
            await self.check(subject)
        except LawBroken as error:
            return Finding(self, "failed", str(error), time.monotonic() - started)
        except Exception as error:  # noqa: BLE001  (whatever a subject raises is its finding)
            return Finding(self, "failed", f"{type(error).__name__}: {show(str(error))}", time.monotonic() - started)
        return Finding(self, "passed", "", time.monotonic() - started)


class Suite(Generic[P]):
    """The laws of one contract."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.laws: list[Law[P]] = []

    def register(self, function: Callable[..., Any], needs: str, run: Callable[[P], Awaitable[None]]) -> None:
        """Take in a law: its sentence is the docstring of the function."""
        says = " ".join((function.__doc__ or "").split())
        name = getattr(function, "__name__", "")
        assert says, f"the law {name} has no sentence"
        assert all(known.name != name for known in self.laws), f"two laws are named {name}"
        self.laws.append(Law(name, function.__module__.rpartition(".")[2], says, needs, run))

    def chosen(self, only: Iterable[str] = ()) -> Iterator[Law[P]]:
        """Every law, or only these laws and groups."""
        names = set(only)
        known = {law.name for law in self.laws} | {law.group for law in self.laws}
        if unknown := names - known:
            raise InvalidValue(f"no such law or group: {', '.join(sorted(unknown))}")
        return (law for law in self.laws if not names or {law.name, law.group} & names)

    async def validate(
        self, subject: Checked[P], *, only: Iterable[str] = (), progress: Callable[[Finding], None] | None = None
    ) -> ConformanceReport:
        """Check the laws on the subject, one after another."""
        findings = []
        for law in self.chosen(only):
            finding = await law.judge(subject)
            findings.append(finding)
            if progress is not None:
                progress(finding)
        return ConformanceReport(subject.name, tuple(findings), self.title)

    def as_markdown(self, *, heading: str) -> str:
        """The list of all laws, as the documentation has it."""
        lines = []
        for group in dict.fromkeys(law.group for law in self.laws):
            laws = [law for law in self.laws if law.group == group]
            shared = {law.needs for law in laws} if len({law.needs for law in laws}) == 1 else set()
            lines += [f"{heading} {group}{_needs(*shared)}", ""]
            lines += [f"- `{law.name}`: {law.says}{'' if shared else _needs(law.needs)}" for law in laws]
            lines.append("")
        return "\n".join(lines)


def _needs(needs: str = "base") -> str:
    return "" if needs == "base" else f" (needs `{needs}`)"


@asynccontextmanager
async def new_place(make: Callable[[str, Path], P], discard: Callable[[P], Awaitable[None]] | None) -> AsyncIterator[P]:
    """A place with a name that no other has and an empty directory; ``discard`` removes what it left elsewhere."""
    with tempfile.TemporaryDirectory(prefix="keelbolt-law-") as directory:
        place = make(f"law_{uuid.uuid4().hex[:12]}", Path(directory))
        try:
            yield place
        finally:
            if discard is not None:
                await discard(place)
