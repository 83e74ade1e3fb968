"""The agent that the official conformance kits talk to: `python -m tests.conformance_agent --port 9999`."""

from __future__ import annotations
