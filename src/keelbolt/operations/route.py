"""The definition of a route of the operations API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

PREFIX = "/keelbolt/v1"

Method = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True)
class OpsRoute:
    """``name`` is the handler. An ``operator`` route shows data without a tenant; its role is ``operator:all``."""

    name: str
    method: Method
    path: str
    summary: str
    query: tuple[tuple[str, str], ...] = ()  # name, description
    body: tuple[tuple[str, str], ...] = ()
    operator: bool = False
    stream: bool = False
    file: bool = False  # the response is not JSON

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", PREFIX + self.path))


PAGE = (("pageSize", "1 to 100 (default 50)"), ("pageToken", "from the page before"))
