"""Skills that are modules of an apcore registry: those of examples/apcore_agent."""

from __future__ import annotations

from pathlib import Path

from apcore import Executor

from keelbolt.apcore import AgentCardBuilder, ApcoreWorker, CallerApproves, SkillCatalog, load_extensions

EXTENSIONS = Path(__file__).parents[1] / "apcore_agent" / "extensions"


def modules() -> tuple[ApcoreWorker, AgentCardBuilder]:
    """Return a worker that runs the modules, and the builder of their part of the card."""
    registry = load_extensions(EXTENSIONS).registry
    catalog = SkillCatalog(registry)
    worker = ApcoreWorker(catalog, Executor(registry, approval_handler=CallerApproves()))
    return worker, AgentCardBuilder(catalog, name="Modules", version="1.0.0", access=worker.access)
