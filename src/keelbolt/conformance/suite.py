"""The laws of one contract, and how they are checked on a subject."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from keelbolt.conformance.expect import LawBroken, show
from keelbolt.conformance.report import ConformanceReport, Finding
from keelbolt.conformance.subject import ConformanceSubject, P
from keelbolt.errors import InvalidValue

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
