"""The result of a run of a suite, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

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
