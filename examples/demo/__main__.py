"""Serve the demo: `make run`, or `python -m examples.demo --port 8080 --storage sqlite:///keelbolt.db`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from examples.demo.agent import Demo
from keelbolt import A2AServer
from keelbolt.errors import KeelboltError
from keelbolt.observability.logs import LEVELS, log_to_stderr
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks.settings import TaskSettings

LEASE_SECONDS = 3.0  # shorter than the default of 15, so that a takeover is seen soon


def server(storage: str) -> A2AServer:
    """Return the demo's server. Callers on this machine are operators: do not run it behind a proxy."""
    demo = Demo(storage)
    tasks = TaskSettings.of()
    if tasks.lease_seconds == TaskSettings().lease_seconds:
        tasks = replace(tasks, lease_seconds=LEASE_SECONDS, heartbeat_seconds=LEASE_SECONDS / 3)
    return A2AServer(
        worker=demo,
        admission=demo,
        agent_card=demo.card(),
        storage=storage,
        settings=ServerSettings.of(operators="loopback"),
        task_settings=tasks,
    )


def tell(address: str) -> None:
    command = os.path.relpath(Path(sys.executable).with_name("keelbolt"))
    lines = (
        f"The agent listens at {address}",
        f"Explorer, in a browser on this machine: {address}/explorer",
        "",
        "There, try 'work through 20 parcels', open the task, and press 'Kill its process'. Or in a terminal:",
        "",
        f"  {command} card {address}",
        f"  {command} stream {address} 'survive a crash'",
        "",
        "Tasks survive a restart: stop the agent with Ctrl-C during a task and start it again; the task continues.",
    )
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="0 uses a free port")
    parser.add_argument("--storage", default="sqlite:///keelbolt.db", help="the URL of the storage, of any engine")
    parser.add_argument("--processes", type=int, default=2, help="number of processes")
    parser.add_argument("--log-level", choices=LEVELS, default="info")
    given = parser.parse_args()
    log_to_stderr(as_json=False, level=given.log_level)
    written = subprocess.run([sys.executable, "-m", "examples.demo.history", given.storage], check=False)
    if written.returncode:
        sys.exit(written.returncode)
    try:
        server(given.storage).run(port=given.port, processes=given.processes, ready=tell)
    except KeelboltError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
