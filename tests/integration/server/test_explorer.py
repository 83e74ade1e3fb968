"""The explorer's files: at their exact paths, with access control and security headers."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from keelbolt.errors import InvalidValue
from keelbolt.explorer import Explorer
from keelbolt.explorer.app import static_files
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from tests.integration.server.actor import agent
from tests.integration.server.people import authenticator

HERE, ELSEWHERE = ("127.0.0.1", 1), ("203.0.113.7", 1)
BUDGET_BYTES = 150_000


def served(client: tuple[str, int] = HERE, host: str = "localhost:8000", **options: Any) -> TestClient:
    server = agent("memory:", settings=ServerSettings.of({}, **options.pop("settings", {})), **options)
    return TestClient(server.app, base_url=f"http://{host}", client=client, follow_redirects=False)


@pytest.mark.parametrize(
    ("options", "client", "host", "there"),
    [
        ({}, HERE, "localhost:8000", True),
        ({}, HERE, "127.0.0.1", True),
        ({}, ELSEWHERE, "localhost:8000", False),
        ({}, HERE, "evil.example", False),  # DNS rebinding: a foreign name that resolves to this machine
        ({"explorer": True}, ELSEWHERE, "192.0.2.1", True),
        ({"explorer": False}, HERE, "localhost:8000", False),
        ({"settings": {"explorer": True, "allowed_hosts": ["agent.example"]}}, ELSEWHERE, "agent.example", True),
        ({"settings": {"explorer": True}, "explorer": False}, HERE, "localhost:8000", False),
    ],
)
def test_access(options: dict[str, Any], client: tuple[str, int], host: str, there: bool) -> None:
    with served(client, host, **options) as browser:
        for path in Explorer().paths:
            assert (browser.get(path).status_code < 400) is there, path


@pytest.mark.parametrize("prefix", ["/explorer", "/look/here"])
def test_a_browser_at_the_address_of_the_agent_is_redirected_to_it(prefix: str) -> None:
    html = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    with served(explorer_prefix=prefix) as browser:
        assert browser.get("/", headers=html, follow_redirects=True).url.path == f"{prefix}/"
        assert browser.get("/").status_code == 404  # other clients get a 404 in JSON
    with served(ELSEWHERE) as browser:
        assert browser.get("/", headers=html).status_code == 404


def test_with_authentication_only_the_page_is_public() -> None:
    with served(ELSEWHERE, "agent.example", auth=authenticator()) as browser:
        assert all(browser.get(path).status_code < 400 for path in Explorer().paths)
        assert browser.get("/keelbolt/v1/whoami").status_code == 401
        assert browser.get("/keelbolt/v1/tasks").status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/explorerfoo",
        "/explorer/tasks",
        "/explorer//",
        "/explorer/index.html",
        "/explorer/js/",
        "/explorer/js/main.js/",
        "/explorer/js/%2e%2e/index.html",
        "/explorer/__init__.py",
        "/explorer/message:send",
    ],
)
def test_only_its_files_are_under_the_prefix(path: str) -> None:
    """A prefix does not bypass authentication."""
    with served(auth=authenticator()) as browser:
        for method in ("GET", "POST"):
            assert browser.request(method, path).status_code in (401, 404)
        assert browser.post("/explorer/").status_code in (401, 404)


def test_another_prefix() -> None:
    with served(explorer_prefix="/ops/look/") as browser:
        assert browser.get("/ops/look").headers["location"] == "look/"
        assert '<meta name="keelbolt-root" content="../../">' in browser.get("/ops/look/").text
        assert browser.get("/explorer/").status_code == 404


@pytest.mark.parametrize("prefix", ["", "/", "explorer", "/a b", "/../x", "/x/./y", "/é", "/tasks", "/keelbolt/v1"])
def test_a_prefix_is_a_plain_path(prefix: str) -> None:
    with pytest.raises(InvalidValue):
        A2AServer(worker=None, agent_card=agent("memory:").agent_card, explorer_prefix=prefix)


def test_it_works_where_the_agent_is_mounted() -> None:
    server = agent("memory:", settings=ServerSettings.of({}))
    app = Starlette(routes=[Mount("/agents/one", app=server.app)], lifespan=server.lifespan)
    with TestClient(app, base_url="http://localhost", client=HERE) as browser:
        assert browser.get("/agents/one/", headers={"Accept": "text/html"}).url.path == "/agents/one/explorer/"
        page = browser.get("/agents/one/explorer")
        assert str(page.url) == "http://localhost/agents/one/explorer/"
        scripts = re.findall(r'(?:src|href)="((?:js|css)/[^"]+)"', page.text)
        assert scripts
        assert all(browser.get(f"/agents/one/explorer/{path}").status_code == 200 for path in scripts)


def test_files_are_compressed_and_have_an_etag_and_security_headers() -> None:
    with served() as browser:
        for path in Explorer().paths[1:]:
            found = browser.get(path)
            assert found.headers["content-encoding"] == "gzip"
            for encoding in ("identity", "gzip;q=0, br"):
                plain = browser.get(path, headers={"accept-encoding": encoding})
                assert "content-encoding" not in plain.headers
                assert plain.content == found.content
            assert browser.get(path, headers={"if-none-match": found.headers["etag"]}).status_code == 304
            assert browser.head(path).content == b""
            policy = found.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert found.headers["x-content-type-options"] == "nosniff"


def test_other_agents_are_in_its_policy() -> None:
    agents = ("https://a.example/agents/one", "https://a.example", "http://[::1]:8000")
    with served(settings={"explorer_agents": agents}) as browser:
        policy = browser.get("/explorer/").headers["content-security-policy"]
        assert "connect-src 'self' https://a.example http://[::1]:8000;" in policy


@pytest.mark.parametrize(
    "url",
    ["", "a.example", "https://a.example;script-src *", "https://a.example b", "https://*", "data:x", "https://a?b"],
)
def test_other_agents_are_plain_addresses(url: str) -> None:
    with pytest.raises(InvalidValue):
        ServerSettings.of({}, explorer_agents=(url,))


def test_its_size_is_limited() -> None:
    assert sum(len(gzip.compress(file.body, 9)) for file in static_files().values()) <= BUDGET_BYTES


@pytest.mark.parametrize("path", sorted(static_files()))
def test_it_uses_no_other_origin_and_builds_no_html(path: str) -> None:
    text = static_files()[path].body.decode()
    names = r"www\.w3\.org/2000/svg|keelbolt\.dev/a2a/extensions/"  # names that are never requested
    assert not re.search(rf"https?://(?!{names})[\w.]", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|style=\"", text)


def test_a_page_of_another_origin_changes_nothing() -> None:
    """Requests that a browser sends without a preflight are refused."""
    with served(settings={"operators": "loopback"}) as browser:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            headers = {"origin": "https://evil.example", "content-type": kind}
            for path in ("/keelbolt/v1/tasks/1/cancel", "/", "/message:send"):
                assert browser.post(path, content="{}", headers=headers).status_code == 403, (path, kind)
        asked = browser.options(
            "/keelbolt/v1/tasks/1",
            headers={"origin": "https://evil.example", "access-control-request-method": "DELETE"},
        )
        assert "access-control-allow-origin" not in asked.headers
