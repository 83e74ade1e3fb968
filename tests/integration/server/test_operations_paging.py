"""Lists of the operations API over the partitions of all owners."""

from __future__ import annotations

from starlette.testclient import TestClient

from keelbolt import A2AServer, AgentCardConfig, TaskContext
from keelbolt.server.settings import ServerSettings


async def worker(ctx: TaskContext) -> None:
    await ctx.complete(f"{ctx.user_text}!")


def test_tasks_of_all_owners_page_by_page() -> None:
    """Each task is listed exactly once, for any page size, also when a partition ends with a page."""
    server = A2AServer(
        worker=worker,
        agent_card=AgentCardConfig(name="A", description="d"),
        settings=ServerSettings(operators="loopback"),
    )
    with TestClient(server.app, base_url="http://localhost:8000", client=("127.0.0.1", 1)) as client:
        sent = {}
        for owner in ("ada", "bob", "cid"):
            for _ in range(4):
                reply = client.post(f"/keelbolt/v1/tasks?owner={owner}", json={"text": f"hello {owner}"})
                sent[reply.json()["id"]] = owner
        for size in (1, 2, 3, 4, 5, 12, 13):
            seen: list[tuple[str, str]] = []
            token = None
            while token != "":
                query = {"all": "true", "pageSize": size, **({"pageToken": token} if token else {})}
                page = client.get("/keelbolt/v1/tasks", params=query).json()
                assert len(page["tasks"]) <= size
                seen += [(task["id"], task["partition"]) for task in page["tasks"]]
                token = page["nextPageToken"]
            assert len(seen) == 12
            assert dict(seen) == sent
        found = client.get("/keelbolt/v1/tasks", params={"all": "true", "q": "hello bob"}).json()
        assert {task["partition"] for task in found["tasks"]} == {"bob"}
        assert client.get("/keelbolt/v1/tasks", params={"all": "true", "owner": "bob"}).status_code == 400
        assert client.get("/keelbolt/v1/tasks", params={"all": "true", "pageToken": "x"}).status_code == 400
