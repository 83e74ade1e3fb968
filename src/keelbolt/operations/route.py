"""The definition of a route of the operations API."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from keelbolt.errors import FieldViolation, InvalidParamsError
from keelbolt.names import suggestion

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

    def check(self, query: Iterable[str], body: Iterable[str]) -> None:
        """Raise InvalidParamsError for names that the route does not have: a misspelt filter would match everything."""
        wrong = [
            FieldViolation(name[:100], f"there is no such {place}{suggestion(name[:100], dict(known))}")
            for place, given, known in (("query parameter", query, self.query), ("member of the body", body, self.body))
            for name in given
            if name not in dict(known)
        ]
        if wrong:
            raise InvalidParamsError(violations=wrong[:10])


PAGE = (("pageSize", "1 to 100 (default 50)"), ("pageToken", "from the page before"))
