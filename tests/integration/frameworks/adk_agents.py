"""Writes a directory of agents for ADK's command line: one agent with a scripted model, and Keelbolt's services."""

from __future__ import annotations

from pathlib import Path

SERVICES = """
from keelbolt.google_adk import register

register()
"""

AGENT = """
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types


class Counting(BaseLlm):
    async def generate_content_async(self, request, stream=False):
        text = f"{len(request.contents)} messages"
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


root_agent = LlmAgent(name="counting", model=Counting(model="scripted"), instruction="Count.")
"""


def write(folder: Path) -> Path:
    (folder / "counting").mkdir()
    (folder / "services.py").write_text(SERVICES)
    (folder / "counting" / "__init__.py").write_text("from . import agent\n")
    (folder / "counting" / "agent.py").write_text(AGENT)
    return folder
