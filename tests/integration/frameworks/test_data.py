"""Data of each framework can be erased, retained and listed by its subjects."""

from __future__ import annotations

from pathlib import Path

import pytest

from keelbolt.data import Subject, erase
from keelbolt.data.inspection import Inspection
from keelbolt.data.retention import parse_policies
from keelbolt.data.sweeping import retain
from keelbolt.errors import SubjectNotFound
from keelbolt.google_adk.families import AdkRetention
from keelbolt.kernel import open_storage
from keelbolt.langgraph.families import LangGraphRetention
from keelbolt.openai_agents.families import OpenAIRetention
from tests.integration.data.filling import rows_with
from tests.integration.frameworks.kept import fill_a2a, fill_adk, fill_langgraph, fill_openai

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

GONE, STAYS = "canary-gone", "canary-stays"


async def test_threads_of_langgraph(any_url: str) -> None:
    async with open_storage(any_url) as kernel:
        values = await fill_langgraph(kernel, f"t/{GONE}", user="ada", canary=GONE)
        await fill_langgraph(kernel, STAYS, user="bob", canary=STAYS)
        look = Inspection(kernel)
        listed = await look.records("langgraph_heads")
        threads = [each["subject"]["id"] for each in listed["records"] if each["subject"]]
        assert threads == [STAYS, f"t/{GONE}"]  # the newest first
        assert listed["records"][0]["updated"].startswith("20")
        thread = Subject(kind="thread", id=f"t/{GONE}")
        page = await look.records("langgraph_checkpoints", of=thread, limit=1)
        shown = (await look.show(page["records"][0]["ref"]))["value"]
        assert shown["state"]["log"][0] == GONE
        assert shown["state"]["log"][2:4] == values["log"][2:4]  # the long value is cut
        assert shown["writes"][0]["channel"] == "__interrupt__"
        (described,) = (await look.describe(thread))["found"]
        counts = {each["title"]: each["count"] for each in described["members"]}
        whole = await look.records("langgraph_checkpoints", of=thread, limit=500)
        assert counts["checkpoints"] == len(whole["records"]) > 5
        assert await look.count("langgraph_checkpoints", of=thread) == {
            "family": "langgraph_checkpoints",
            "title": "checkpoints",
            "count": counts["checkpoints"],
            "exact": True,
        }
        kept = len(await rows_with(kernel, STAYS))
        erased = await erase(kernel, thread)
        assert erased.records["checkpoints"] == counts["checkpoints"]
        assert len(await rows_with(kernel, GONE)) == 1  # the item
        await erase(kernel, Subject(kind="user", id="ada"))
        assert await rows_with(kernel, GONE) == []
        assert len(await rows_with(kernel, STAYS)) == kept
        assert await retain(LangGraphRetention(langgraph_threads=3600.0), kernel) == {}
        assert await retain(LangGraphRetention(langgraph_threads=0.0), kernel, dry=True) == {"threads": 1}
        assert await retain(LangGraphRetention(langgraph_threads=0.0), kernel) == {"threads": 1}
        assert len(await rows_with(kernel, STAYS)) == 1  # the item
        await erase(kernel, Subject(kind="tenant", id="default"))
        assert await rows_with(kernel, STAYS) == []


async def test_sessions_of_openai_agents(any_url: str) -> None:
    async with open_storage(any_url) as kernel:
        await fill_openai(kernel, f"s {GONE}", canary=GONE)
        await fill_openai(kernel, STAYS, canary=STAYS)
        look = Inspection(kernel)
        gone = Subject(kind="session", id=f"s {GONE}")
        listed = await look.records("openai_sessions")
        assert [each["subject"] for each in listed["records"]] == [
            {"kind": "session", "id": STAYS},
            {"kind": "session", "id": f"s {GONE}"},
        ]
        seen = []
        token = None
        while token != "":
            page = await look.records("openai_items", of=gone, limit=7, cursor=token)
            seen += [(await look.show(each["ref"]))["value"]["content"] for each in page["records"]]
            token = page["nextPageToken"]
        assert seen == [f"{GONE} {number}" for number in reversed(range(30))]
        assert (await erase(kernel, gone)).records == {"sessions": 1, "items": 30}
        assert await rows_with(kernel, GONE) == []
        with pytest.raises(SubjectNotFound):
            await look.describe(gone)
        assert parse_policies(["openai_sessions=1d"], [OpenAIRetention]) == [OpenAIRetention(openai_sessions=86400.0)]
        assert await retain(OpenAIRetention(openai_sessions=0.0), kernel) == {"sessions": 1}
        assert await rows_with(kernel, STAYS) == []


async def test_sessions_of_google_adk(any_url: str) -> None:
    async with open_storage(any_url) as kernel:
        await fill_adk(kernel, GONE, user="ada", canary=GONE)
        await fill_adk(kernel, "s-2", user="ada", canary="canary-second")
        await fill_adk(kernel, GONE, user="bob", canary=STAYS)
        look = Inspection(kernel)
        listed = (await look.records("adk_sessions"))["records"]
        assert {each["id"] for each in listed} == {f"shop/ada/{GONE}", "shop/ada/s-2", f"shop/bob/{GONE}"}
        ref = next(each["ref"] for each in listed if each["id"] == "shop/ada/s-2")
        assert (await look.show(ref))["value"]["state"] == {"x": "canary-second", "count": 9}
        page = await look.entries(ref, "adk_events", after=0, limit=4)
        assert [entry["value"]["id"] for entry in page["entries"]] == ["e0", "e1", "e2", "e3"]
        assert (page["more"], page["next"], page["head"]) == (True, 4, 10)
        erased = await erase(kernel, Subject(kind="session", id=GONE, owner="ada"))
        assert erased.records == {"sessions": 1, "files": 1, "artifacts": 2, "memories": 10}
        assert len(await rows_with(kernel, GONE, "ada/")) > 0  # another session of ada, and her own state
        await erase(kernel, Subject(kind="user", id="ada"))
        assert await rows_with(kernel, "canary-second", "/ada") == []
        assert await retain(AdkRetention(adk_sessions=3600.0), kernel) == {}
        assert await retain(AdkRetention(adk_sessions=0.0), kernel) == {"sessions": 1}
        assert len(await rows_with(kernel, STAYS)) == 1  # the state of the user
        await erase(kernel, Subject(kind="tenant", id="default"))
        assert await rows_with(kernel, STAYS) == []


async def test_push_configs_of_the_a2a_sdk(kept_url: str) -> None:
    for task in ("one", "two", "three"):
        await fill_a2a(kept_url, task, owner="ada", canary=GONE)
    await fill_a2a(kept_url, "other", owner="bob", canary=STAYS)
    async with open_storage(kept_url) as kernel:
        look = Inspection(kernel)
        listed = await look.records("sdk_push_configs", owner="bob")
        assert len(listed["records"]) == 1
        shown = await look.show(listed["records"][0]["ref"])
        assert shown["value"]["url"] == "https://example.org/"
        assert STAYS not in repr(shown)  # the token
        await erase(kernel, Subject(kind="task", id="one", owner="ada"))
        with pytest.raises(SubjectNotFound):
            await erase(kernel, Subject(kind="task", id="two", owner="bob"))
        await erase(kernel, Subject(kind="context", id="context of two", owner="ada"))
        assert await rows_with(kernel, "'one'", "'two'", "one/c", "two/c") == []
        await erase(kernel, Subject(kind="user", id="ada"))
        assert await rows_with(kernel, GONE, "three") == []
        assert len(await rows_with(kernel, STAYS)) > 1


def test_declarations_need_no_framework(tmp_path: Path) -> None:
    """A command can erase data of a framework without importing it."""
    import subprocess
    import sys

    code = (
        "import sys\nfrom keelbolt.data import faces\nassert len(faces()) >= 7\n"
        "print([name for name in ('langgraph', 'agents', 'google.adk', 'a2a') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "[]\n"
