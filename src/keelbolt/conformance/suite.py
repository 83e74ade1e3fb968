"""A suite: the laws of one contract, the subject that they are checked on, and the report of a run."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

from keelbolt.conformance.expect import LawBroken, show
from keelbolt.errors import InvalidValue

S = TypeVar("S")
P = TypeVar("P", bound="ConformancePlace[Any]")


@dataclass(frozen=True, slots=True)
class ConformancePlace(ABC, Generic[S]):
    """One set of data. ``name`` is unique; ``directory`` is empty at first, for subjects that write files."""

    subject: S
    name: str
    directory: Path

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[Any]:
        """Open the implementation on the data of this place; it is closed at the end of the block."""


@dataclass(frozen=True, slots=True)
class ConformanceSubject(ABC, Generic[P]):
    """An implementation to check. ``make`` returns one for a place; at a new place it is empty.

    ``persistent``: a second one at the same place finds the data of the first. ``discard`` is awaited at the end of
    each law and removes the data that the place has outside of its directory.
    """

    name: str
    make: Callable[..., Any]
    _: KW_ONLY
    persistent: bool = False
    discard: Callable[[Any], Awaitable[None]] | None = None

    place_class: ClassVar[Any]
    declared: ClassVar[tuple[str, ...]] = ("persistent",)  # capabilities that are fields of the subject

    def can(self, needs: str) -> bool:
        """Whether laws that need this capability apply."""
        if needs in self.declared:
            return bool(getattr(self, needs))
        return needs == "base" or self.has(needs)

    def lacks(self, needs: str) -> str:
        """Why laws that need this capability do not apply."""
        if needs in self.declared:
            return f"{self.name} does not declare {needs}"
        return f"{self.name} does not have {self.describe(needs)}"

    def has(self, needs: str) -> bool:
        """Whether the implementation has a capability that is not declared."""
        raise NotImplementedError(needs)

    def describe(self, needs: str) -> str:
        """The methods of a capability that is not declared."""
        return needs

    @asynccontextmanager
    async def place(self) -> AsyncIterator[P]:
        """A new, empty place, removed at the end of the block."""
        with tempfile.TemporaryDirectory(prefix="keelbolt-law-") as directory:
            place = self.place_class(self, f"law_{uuid.uuid4().hex[:12]}", Path(directory))
            try:
                yield place
            finally:
                if self.discard is not None:
                    await self.discard(place)

    async def probed(self) -> Self:
        """The same subject with the capabilities that only an open implementation shows."""
        return self

    @classmethod
    def of(cls, given: Any, *, name: str | None = None) -> Self:
        """Return a subject unchanged; make one from a factory or class of implementations."""
        if isinstance(given, cls):
            return given
        if not callable(given):
            raise InvalidValue(f"{given!r} is neither a {cls.__name__} nor a factory")
        return cls.from_factory(given, name or str(getattr(given, "__name__", type(given).__name__)))

    @classmethod
    @abstractmethod
    def from_factory(cls, factory: Callable[..., Any], name: str) -> Self:
        """A subject whose implementations the factory makes."""

    @classmethod
    def load(cls, reference: str) -> Self:
        """The subject, or the factory, that ``module:attribute`` names."""
        module, colon, attribute = reference.partition(":")
        if not (module and colon and attribute):
            raise InvalidValue(f"{reference!r} names no factory; write it as module:attribute")
        try:
            given: Any = importlib.import_module(module)
            for part in attribute.split("."):
                given = getattr(given, part)
        except (ImportError, AttributeError) as error:
            raise InvalidValue(f"{reference!r} can't be loaded: {error}") from error
        if not isinstance(given, cls) and not callable(given):
            raise InvalidValue(f"{reference!r} is a {type(given).__name__}; it must be a {cls.__name__} or a factory")
        return cls.of(given, name=reference)


LAW_SECONDS = 60.0

C = TypeVar("C")

CaseLaw = Callable[[C], Awaitable[None]]
PlaceLaw = Callable[[P], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Law(Generic[P]):
    """One sentence of a contract and a function that raises if an implementation does not obey it.

    ``group`` is the module of the law, ``needs`` the capability without which the law does not apply.
    """

    name: str
    group: str
    says: str
    needs: str
    run: Callable[[P], Awaitable[None]]

    async def check(self, subject: ConformanceSubject[P]) -> None:
        """Run the law at a new place of the subject; raises LawBroken if it fails or takes too long."""
        try:
            async with asyncio.timeout(LAW_SECONDS), subject.place() as place:
                await self.run(place)
        except TimeoutError as error:
            message = f"no end within {LAW_SECONDS:g} s"
            raise LawBroken(message) from error

    async def judge(self, subject: ConformanceSubject[P]) -> Finding:
        """Run the law and return its verdict."""
        if not subject.can(self.needs):
            return Finding(self, "skipped", subject.lacks(self.needs))
        started = time.monotonic()
        try:
            await self.check(subject)
        except LawBroken as error:
            return Finding(self, "failed", str(error), time.monotonic() - started)
        except Exception as error:  # noqa: BLE001  (every error of a subject is a finding)
            return Finding(self, "failed", f"{type(error).__name__}: {show(str(error))}", time.monotonic() - started)
        return Finding(self, "passed", "", time.monotonic() - started)


class Suite(Generic[P, C]):
    """The laws of one contract. They are the functions in the modules of ``package`` that are decorated with `law`."""

    def __init__(self, title: str, subject: type[ConformanceSubject[P]], package: str) -> None:
        self.title = title
        self.subject = subject
        self._package = package
        self._laws: list[Law[P]] = []

    # ------------------------------------------------------------------------------------------- decorators of laws

    def law(self, needs: str = "base") -> Callable[[CaseLaw[C]], CaseLaw[C]]:
        """A law about one open implementation on empty data."""

        def register(function: CaseLaw[C]) -> CaseLaw[C]:
            async def run(place: P) -> None:
                async with place.open() as case:
                    await function(case)

            self._register(function, needs, run)
            return function

        return register

    def place_law(self, needs: str = "base") -> Callable[[PlaceLaw[P]], PlaceLaw[P]]:
        """A law that opens the implementation itself, perhaps several times."""

        def register(function: PlaceLaw[P]) -> PlaceLaw[P]:
            self._register(function, needs, function)
            return function

        return register

    def _register(self, function: Callable[..., Any], needs: str, run: PlaceLaw[P]) -> None:
        says = " ".join((function.__doc__ or "").split())
        name = getattr(function, "__name__", "")
        assert says, f"the law {name} has no docstring"
        assert all(known.name != name for known in self._laws), f"two laws are named {name}"
        self._laws.append(Law(name, function.__module__.rpartition(".")[2], says, needs, run))

    # ------------------------------------------------------------------------------------------------ what they give

    def all_laws(self) -> tuple[Law[P], ...]:
        """Every law, sorted by group."""
        for module in pkgutil.iter_modules(importlib.import_module(self._package).__path__):
            importlib.import_module(f"{self._package}.{module.name}")
        return tuple(sorted(self._laws, key=lambda law: law.group))

    def chosen(self, only: Iterable[str] = ()) -> Iterator[Law[P]]:
        """Every law, or only these laws and groups."""
        names = set(only)
        laws = self.all_laws()
        known = {law.name for law in laws} | {law.group for law in laws}
        if unknown := names - known:
            raise InvalidValue(f"no such law or group: {', '.join(sorted(unknown))}")
        return (law for law in laws if not names or {law.name, law.group} & names)

    def load(self, reference: str) -> ConformanceSubject[P]:
        """The subject, or the factory, that ``module:attribute`` names."""
        return self.subject.load(reference)

    async def validate(
        self,
        subject: ConformanceSubject[P] | Callable[..., Any],
        *,
        only: Iterable[str] = (),
        progress: Callable[[Finding], None] | None = None,
    ) -> ConformanceReport:
        """Check every law (or ``only`` these laws or groups) on a subject or a factory, one after another."""
        checked = await self.subject.of(subject).probed()
        findings = []
        for law in self.chosen(only):
            finding = await law.judge(checked)
            findings.append(finding)
            if progress is not None:
                progress(finding)
        return ConformanceReport(checked.name, tuple(findings), self.title)

    def laws_as_markdown(self) -> str:
        """The list of all laws for the documentation; `python -m keelbolt.conformance PACKAGE` prints it."""
        lines = []
        laws = self.all_laws()
        for group in dict.fromkeys(law.group for law in laws):
            members = [law for law in laws if law.group == group]
            shared = {law.needs for law in members} if len({law.needs for law in members}) == 1 else set()
            lines += [f"### {group}{_needs(*shared)}", ""]
            lines += [f"- `{law.name}`: {law.says}{'' if shared else _needs(law.needs)}" for law in members]
            lines.append("")
        return "\n".join(lines)


def _needs(needs: str = "base") -> str:
    return "" if needs == "base" else f" (needs `{needs}`)"


# --------------------------------------------------------------------------------------------------------------- report


Verdict = Literal["passed", "failed", "skipped"]

_MARKS: dict[Verdict, str] = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


class Stated(Protocol):
    """The parts of a law that a report shows."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def says(self) -> str: ...
    @property
    def needs(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One law on one subject. ``message`` is the failure, or why the law was skipped."""

    law: Stated
    verdict: Verdict
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """All findings about one subject; prints as plain text."""

    subject: str
    findings: tuple[Finding, ...]
    title: str = "Storage laws"

    @property
    def passed(self) -> tuple[Finding, ...]:
        return self._of("passed")

    @property
    def failed(self) -> tuple[Finding, ...]:
        return self._of("failed")

    @property
    def skipped(self) -> tuple[Finding, ...]:
        return self._of("skipped")

    @property
    def ok(self) -> bool:
        """Whether the subject obeys every law that applies to it."""
        return bool(self.findings) and not self.failed

    def _of(self, verdict: Verdict) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == verdict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "ok": self.ok,
            "passed": len(self.passed),
            "failed": len(self.failed),
            "skipped": len(self.skipped),
            "laws": [
                {
                    "law": finding.law.name,
                    "group": finding.law.group,
                    "needs": finding.law.needs,
                    "says": finding.law.says,
                    "verdict": finding.verdict,
                    "message": finding.message,
                    "seconds": round(finding.seconds, 3),
                }
                for finding in self.findings
            ],
        }

    def __str__(self) -> str:
        lines = [f"{self.title} on {self.subject}"]
        group = ""
        for finding in self.findings:
            if finding.law.group != group:
                group = finding.law.group
                lines.append(f"\n{group}")
            lines.append(f"  {_MARKS[finding.verdict]:<8}{finding.law.name}")
            if finding.verdict == "failed":
                lines += [f"          law: {finding.law.says}", f"          but: {finding.message}"]
            elif finding.verdict == "skipped":
                lines.append(f"          {finding.message}")
        lines.append(
            f"\n{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped "
            f"in {sum(finding.seconds for finding in self.findings):.1f} s"
        )
        return "\n".join(lines)
