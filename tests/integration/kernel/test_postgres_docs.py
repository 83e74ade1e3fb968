"""The SQL of the documentation runs, on a store that is in use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from keelbolt.kernel import Append, Collection, Draft, Enqueue, Insert, open_storage
from keelbolt.testing.postgres import OwnPostgres, own_postgres
from tests.integration.kernel.postgres_servers import url_for

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "postgresql.md"
BLOCKS = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


def statements(block: str) -> list[str]:
    plain = "\n".join(line for line in block.splitlines() if not line.startswith("--"))
    return [statement.strip() for statement in plain.split(";") if statement.strip()]


async def test_the_sql_of_the_page_runs_in_order(server: OwnPostgres) -> None:
    """Roles are created, the program opens its schema, rights are granted, and every query returns rows."""
    families = [Collection("task", fields={"state": str})]
    roles, *others = BLOCKS
    with server.database() as url:
        for statement in statements(roles):
            server.execute(statement, url=url)
        async with open_storage(url_for(url, ("agent", "a%20long%20one")), declare=families) as kernel:
            await kernel.commit(
                "acme",
                Insert("task", "t1", b"{}", {"state": "working"}),
                Append("events", "t1", (Draft("said", b"hello"),)),
                Enqueue("jobs", "t1"),
                Enqueue("jobs", "t2"),
            )
            await kernel.claim("jobs", "worker", lease_seconds=0.001)
            answers = {}
            for block in others:
                for statement in statements(block):
                    answers[statement.split()[0], statement] = server.execute(statement, url=url)
        assert len([statement for kind, statement in answers if kind == "SELECT"]) >= 8
        work = next(rows for (_, statement), rows in answers.items() if "oldest_seconds" in statement)
        assert {(row[0], row[1]): row[2] for row in work} == {("jobs", "held"): 1, ("jobs", "ready"): 1}
        late = next(rows for (_, statement), rows in answers.items() if "lease_until" in statement)
        assert [tuple(row) for row in late] == [("jobs", "worker", 1)]
        runtime = url_for(url, ("agent_runtime", "another%20long%20one"))
        async with open_storage(runtime, declare=families) as kernel:
            assert await kernel.get("acme", "task", "t1") is not None
            await kernel.commit("acme", Insert("task", "t2", b"{}", {"state": "new"}))
        looker = url_for(url, ("looker", "a%20third%20one"))
        assert server.execute("SELECT text FROM keelbolt.log", url=looker)[0][0] == "hello"
        with pytest.raises(Exception, match="permission denied"):
            server.execute("SELECT * FROM keelbolt.record", url=looker)
