"""Starts the agent: see --help."""

from __future__ import annotations

import argparse
import logging

from keelbolt.auth import TokenAuthenticator
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig, ExtensionConfig, ProviderConfig, SkillConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from tests.conformance_agent.behaviour import Conforming

REQUIRED_EXTENSION = "urn:a2a:tck:required-extension"


def card(
    *, streaming: bool = True, push: bool = True, extended: bool = False, required_extension: bool = False
) -> AgentCardConfig:
    """The card of the agent."""
    extensions = [ExtensionConfig(uri=REQUIRED_EXTENSION, required=True)] if required_extension else []
    return AgentCardConfig(
        name="Conformance agent",
        description="Does what the conformance kits ask for",
        skills=[SkillConfig(id="tck", name="TCK", description="Obeys message ids", tags=["conformance"])],
        capabilities=CapabilitiesConfig(
            streaming=streaming, push_notifications=push, extended_agent_card=extended, extensions=extensions
        ),
        provider=ProviderConfig(organization="Keelbolt", url="https://example.com"),
        input_modes=("text/plain", "application/json", "image/*", "application/pdf", "application/octet-stream"),
        output_modes=("text/plain", "application/json"),
    )


def server(
    config: AgentCardConfig, storage: str = "memory:", *, token: str | None = None, grpc_port: int | None = None
) -> A2AServer:
    """The agent; its extended card says one word more."""
    extended = config.model_copy(update={"description": config.description + ", and tells you so"})
    settings = ServerSettings.of(webhook_loopback=True)  # the kits receive webhooks on the same machine
    return A2AServer(
        worker=Conforming(),
        agent_card=config,
        storage=storage,
        auth=TokenAuthenticator.of({token: "kit"}) if token is not None else None,
        extended_card=lambda _caller: extended,
        settings=settings,
        grpc_port=grpc_port,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance_agent", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9999)
    parser.add_argument("--grpc-port", type=int, help="serve gRPC too, there")
    parser.add_argument("--storage", default="memory:", help="sqlite:///file.db, postgresql://…")
    parser.add_argument("--no-streaming", action="store_true")
    parser.add_argument("--no-push", action="store_true")
    parser.add_argument("--extended-card", action="store_true", help="have one; needs --token")
    parser.add_argument("--token", help="answer only who has it, as a bearer token")
    parser.add_argument("--required-extension", action="store_true", help=f"require {REQUIRED_EXTENSION}")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    config = card(
        streaming=not given.no_streaming,
        push=not given.no_push,
        extended=given.extended_card,
        required_extension=given.required_extension,
    )
    print(f"http://{given.host}:{given.port}/", flush=True)
    agent = server(config, given.storage, token=given.token, grpc_port=given.grpc_port)
    agent.run(host=given.host, port=given.port, processes=given.processes)


if __name__ == "__main__":
    main()
