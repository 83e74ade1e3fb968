"""The alerts and the dashboard of deploy/, on a real Prometheus that scrapes a real agent of two processes."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.integration.deploy.watched import DEPLOY, ROOT, Watched, expression, panels, watched
from tests.integration.webhooks.receiver import receiving

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="prometheus is not installed")

RULES = DEPLOY / "prometheus/alerts.yml"
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
QUIET = {"Storage errors and sweeps"}  # has no data without a failure


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    for kind, file in (("rules", RULES), ("config", RULES.with_name("prometheus.yml"))):
        done = subprocess.run(["promtool", "check", kind, str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_each_alert_has_its_runbook() -> None:
    page = (ROOT / "docs/howto/monitor.md").read_text()
    headings = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert headings == [rule["alert"] for rule in ALERTS]
    for rule in ALERTS:
        assert rule["annotations"]["runbook"] == f"docs/howto/monitor.md#{rule['alert'].lower()}"


def test_rules_and_dashboard_use_metrics_that_exist() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    known = set(re.findall(r"^\| `(keelbolt_\w+)`", page, re.MULTILINE))
    targets = [target for panel in panels() for target in panel["targets"]]
    written = " ".join(each["expr"] for each in (*ALERTS, *targets))
    used = {re.sub("_bucket$", "", name) for name in re.findall(r"keelbolt_\w+", written)}
    assert used <= known
    assert len(used) > 15


async def test_each_alert_fires_and_each_panel_has_data(postgres_url: str) -> None:
    """The load and the faults are real; only times and one threshold of the rules are shortened."""
    fired: set[str] = set()
    async with receiving() as receiver, watched(postgres_url) as found:
        receiver.always(500)
        async with asyncio.timeout(240):
            await scraped(found, 0)  # the alert needs a change of the value
            await found.send("die")
            await scraped(found, 1)
            for _ in range(4):  # each of the two processes can run two tasks; the others wait
                await found.send("hold 14")
            wanted = {rule["alert"] for rule in ALERTS} - {"KeelboltStorageDown"}
            empty = [panel for panel in panels() if panel["title"] not in QUIET]
            while empty or not fired >= wanted:
                await found.send("fail", hook=receiver.url)
                await found.send("steps")
                fired |= await found.firing()
                empty = [panel for panel in empty if not await drawn(found, panel)]
                await asyncio.sleep(0.3)
            found.proxy.refuse()
            while "KeelboltStorageDown" not in fired:
                fired |= await found.firing()
                await asyncio.sleep(0.3)
    assert fired == {rule["alert"] for rule in ALERTS}


async def drawn(found: Watched, panel: dict[str, Any]) -> bool:
    """Return whether a panel of the dashboard has data."""
    return any([await found.query(expression(target["expr"])) for target in panel["targets"]])


async def scraped(found: Watched, dead: int) -> None:
    """Wait until Prometheus has scraped this many dead letters."""
    while not await found.query(f'keelbolt_queue_items{{queue="tasks",state="dead"}} == {dead}'):  # noqa: ASYNC110
        await asyncio.sleep(0.2)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = (DEPLOY / "systemd/keelbolt.service").read_text()
    keelbolt = shutil.which("true")
    unit = tmp_path / "agent.service"
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={keelbolt}", text))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
