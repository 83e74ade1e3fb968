"""Sessions without penguiflow."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
sys.modules["penguiflow"] = None  # not installed
from keelbolt.state.sessions import StreamingSession

async def main():
    async def pipeline(runtime):
        return type(runtime.state).__module__
    async with StreamingSession("s") as session:
        print((await session.run_task(pipeline)).payload)

asyncio.run(main())
"""


def test_penguiflow_is_not_needed() -> None:
    """No module of penguiflow is imported, and Keelbolt's own classes are used."""
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("keelbolt.state.types.tasks\n", "")
