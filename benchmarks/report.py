"""The figures of a benchmark."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; ``met`` is None without a target."""

    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None


@dataclass(slots=True)
class Report:
    figures: list[Figure] = field(default_factory=list)

    def note(self, name: str, value: float, unit: str) -> None:
        self.figures.append(Figure(name, value, unit))

    def at_least(self, name: str, value: float, unit: str, least: float) -> None:
        self.figures.append(Figure(name, value, unit, f"≥ {least:g}", value >= least))

    def at_most(self, name: str, value: float, unit: str, most: float) -> None:
        self.figures.append(Figure(name, value, unit, f"≤ {most:g}", value <= most))

    def to_json(self) -> dict[str, Any]:
        return {
            "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
            "figures": [asdict(figure) for figure in self.figures],
        }
