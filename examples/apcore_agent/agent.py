"""The same agent from Python, for settings without a command-line option: `python examples/apcore_agent/agent.py`."""

from __future__ import annotations

from pathlib import Path

from keelbolt.apcore import CallerApproves, serve

EXTENSIONS = Path(__file__).parent / "extensions"

if __name__ == "__main__":
    serve(
        EXTENSIONS,
        host="127.0.0.1",
        name="Shop assistant",
        storage="sqlite:///shop.db",
        approval_handler=CallerApproves(),
        explorer=True,
        log_level="info",
    )
