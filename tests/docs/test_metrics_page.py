"""The reference of the metrics lists exactly the metrics of a scrape, with types and labels."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from keelbolt.observability.metrics import Metrics, StoreNumbers
from keelbolt.server.settings import ServerSettings
from tests.docs.test_first_agent import ROOT
from tests.integration.server.actor import agent
from tests.integration.server.serving import talking

ROW = re.compile(r"^\| `(keelbolt_\w+)` \| (\w+) \| ([^|]*)\|", re.MULTILINE)


def documented() -> dict[str, tuple[str, set[str]]]:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(page)}


def shown(text: str) -> dict[str, tuple[str, set[str]]]:
    """Return the families of a scrape. The parser removes the suffix of counters."""
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in text_string_to_metric_families(text)
    }


async def test_the_page_lists_what_a_scrape_returns() -> None:
    async with talking(agent(settings=ServerSettings.of({}, metrics=True))) as client:
        found = shown((await client.get("/metrics")).text)
    assert {name: kind for name, (kind, _) in found.items()} == {name: kind for name, (kind, _) in documented().items()}


def test_the_page_names_the_labels() -> None:
    metrics = Metrics()
    metrics.request("SendMessage", "ok", 0.1)
    metrics.task_ended("completed", 0.1)
    metrics.step_ended("done", 0.1)
    metrics.swept("expired", {"blobs": 1})
    for counter in (metrics.tasks, metrics.webhooks, metrics.storage_errors):
        counter["x"] += 1
    found = shown(metrics.text(StoreNumbers({"tasks": {"waiting": 1}}, {"tasks": 1.0}, 1)))
    pages = documented()
    assert {name: labels for name, (_, labels) in found.items()} == {
        name: labels for name, (_, labels) in pages.items() if name in found
    }
