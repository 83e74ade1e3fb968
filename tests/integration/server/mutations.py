"""Invalid requests: valid ones with a changed part, and bytes that are not a request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from keelbolt.operations.table import PREFIX, ROUTES
from keelbolt.protocol.operations import METHODS, Operation
from tests.integration.server.calls import METHODS as CALLS
from tests.integration.server.calls import request
from tests.integration.server.entries import ENTRIES, Entry, RequestFields


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as bytes."""

    method: str
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: tuple[bytes, ...] = field(default=(b"",))


JSON_TYPE = ("content-type", "application/json")

# ------------------------------------------------------------------------------------------------------------ values

ODD_TEXTS = st.sampled_from(
    [
        "",
        " ",
        "\0",
        "a\0b",
        "\u202e",
        "\ufeff",
        "\U0001f600" * 3,
        "é" * 600,
        "../../etc/passwd",
        "'; DROP TABLE tasks; --",
        "%s%n{0}${jndi:x}",
        "<script>alert(1)</script>",
        "tasks/x/pushNotificationConfigs/y",
        "x" * 1024,
        "x" * 1025,
        "x" * 70_000,
        "-1",
        "1e309",
        "NaN",
        "true",
        "null",
        "TASK_STATE_WORKING",
        "ROLE_AGENT",
        "file:///etc/passwd",
        "http://169.254.169.254/",
        "https://[::1",
        "https://u:p@hook.example/",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "2026-01-01",
        "2026-01-01T00:00:00Z",
    ]
)
NASTY_IDS = st.sampled_from(
    ["\0", "a\0b", "é" * 1024, "\U0001f600" * 1024, "x/y", "~", "\x7f", "\u2028", "x" * 201, ".."]
)
TEXTS = ODD_TEXTS | NASTY_IDS | st.text(max_size=20)
NUMBERS = (
    st.sampled_from([0, -1, 1, 2**31 - 1, 2**31, 2**53, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, 5e-324])
    | st.integers(-3, 200)
    | st.floats(allow_nan=False, allow_infinity=False)
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
NAMES = (
    st.sampled_from(
        ["id", "taskId", "task_id", "contextId", "message", "parts", "text", "data", "kind", "type", "name", "parent"]
    )
    | st.sampled_from(["metadata", "configuration", "tenant", "url", "config", "__proto__", "", "\0", "$ref", "role"])
    | st.text(max_size=8)
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for name, item in value.items():
            found += _paths(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            found += _paths(item, (*path, number))
    return found


def _changed(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _changed(copy[path[0]], path[1:], change)
    return copy


@st.composite
def bent(draw: st.DrawFn, value: Any) -> Any:
    """Return a JSON value with a few places changed."""
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 1, 2, 4]))):
        value = _bent_once(draw, value, draw(st.sampled_from(_paths(value))))
    return value


def _bent_once(draw: st.DrawFn, value: Any, path: tuple[Any, ...]) -> Any:
    new = draw(VALUES)
    match draw(st.integers(0, 5)):
        case 0 | 1:
            return _changed(value, path, lambda _old: new)
        case 2:
            name = draw(NAMES)
            return _changed(value, path, lambda old: {**old, name: new} if isinstance(old, dict) else [old, new])
        case 3 if path:
            return _changed(value, path[:-1], lambda old: _without(old, path[-1]))
        case 4:
            return _changed(value, path, lambda old: {"value": old})
        case _:
            return _changed(value, path, lambda old: [old, old])


def _without(value: Any, place: Any) -> Any:
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if name != place}
    return value[:place] + value[place + 1 :]


# ------------------------------------------------------------------------------------------------------------- bytes

ODD_JSON = st.sampled_from(
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"[{}]",
        b'"x"',
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
        b'{"a":1,"a":2}',
        b'{"a":"\\ud800"}',
        b'{"\\udfff":1}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"[" * 2000,
        b'{"a":' * 2000,
        b"[" * 70 + b"]" * 70,
        b"{",
        b'{"jsonrpc":"2.0"}',
        b"<xml/>",
        b"a=b&c=d",
    ]
)


@st.composite
def written(draw: st.DrawFn, value: Any) -> bytes:
    """Return a JSON value as bytes; sometimes slightly invalid."""
    text = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 29)):
        case 7:
            return text[: draw(st.integers(0, len(text)))]
        case 8:
            place = draw(st.integers(0, len(text)))
            return text[:place] + draw(st.binary(max_size=4)) + text[place:]
        case 9:
            odd = draw(st.sampled_from([b"NaN", b"1e999", b'"\\ud800"', b"[" * 100 + b"]" * 100, b"9" * 5000, b"1.0"]))
            return text.replace(b'"x"', odd).replace(b'"Hello"', odd)
        case 10:
            return draw(ODD_JSON)
        case _:
            return text


@st.composite
def pieces(draw: st.DrawFn, body: bytes) -> tuple[bytes, ...]:
    """Return the body as the pieces in which it arrives."""
    if draw(st.integers(0, 3)):
        return (body,)
    places = sorted(draw(st.lists(st.integers(0, len(body)), max_size=4)))
    return tuple(body[low:high] for low, high in zip([0, *places], [*places, len(body)], strict=True))


# ----------------------------------------------------------------------------------------------------------- headers

ODD_HEADERS = st.sampled_from(
    [
        ("a2a-version", "1.0"),
        ("a2a-version", "0.3"),
        ("a2a-version", "1.0.1"),
        ("a2a-version", "2.0"),
        ("a2a-version", "\xff"),
        ("a2a-version", "1" * 5000),
        ("a2a-extensions", "urn:keelbolt:a2a:resume:v1"),
        ("a2a-extensions", ",,, ,x\x01y, https://x.example" * 50),
        ("x-a2a-extensions", "https://x.example"),
        ("last-event-id", "1"),
        ("last-event-id", "0"),
        ("last-event-id", "99999999"),
        ("last-event-id", "-1"),
        ("last-event-id", "²"),
        ("last-event-id", "x" * 100),
        ("content-type", "text/plain"),
        ("content-type", "application/json; charset=latin-1"),
        ("content-type", ";"),
        ("content-length", "²"),
        ("content-length", "0"),
        ("content-length", "9" * 400),
        ("accept", "text/event-stream"),
        ("accept", "application/json"),
        ("accept", "*/*;q=x"),
        ("host", "agent.example"),
        ("host", "[::1"),
        ("host", "a b\x00c"),
        ("origin", "https://page.example"),
        ("x-forwarded-host", "evil.example"),
        ("transfer-encoding", "chunked"),
        ("traceparent", "00-zz-zz-01"),
        ("expect", "100-continue"),
        ("cookie", "a=b"),
        ("x-odd", "y" * 3000),
    ]
)
HEADERS = st.sampled_from([0, 0, 0, 0, 1, 3]).flatmap(
    lambda most: st.lists(ODD_HEADERS, max_size=most).map(tuple) if most else st.just(())
)

# ---------------------------------------------------------------------------------------------------------- requests


SENDING = (Operation.send_message, Operation.send_streaming_message)
WORDS = ["Hello", "input", "x", "data", "artifact"]


@st.composite
def request_fields(draw: st.DrawFn, known: dict[str, list[str]], operation: Operation) -> RequestFields:
    """Mostly existing data, own or another's; sometimes an impossible value in one place."""
    found = {name: draw(st.sampled_from(["", "", *known[name]])) for name in ("context", "config", "page")}
    found |= {"task": draw(st.sampled_from(known["task"])), "text": draw(st.sampled_from(WORDS)), "tenant": ""}
    found["reference"] = draw(st.sampled_from(["", found["task"]]))
    if operation in SENDING and draw(st.integers(0, 2)):
        found["task"] = ""
    elif operation in SENDING:
        found["context"] = ""
    if draw(st.integers(0, 3)) == 0:
        found[draw(st.sampled_from(sorted(found)))] = draw(NASTY_IDS | TEXTS)
    return RequestFields(**found)


@st.composite
def rpc_calls(draw: st.DrawFn, known: dict[str, list[str]]) -> Asked:
    """A JSON-RPC call with changes."""
    entry = draw(st.sampled_from([entry for entry in ENTRIES if not entry.path]))
    request = json.loads(entry.request(draw(request_fields(known, entry.operation)))["body"])
    if not draw(st.integers(0, 19)):
        request["method"] = draw(st.sampled_from(sorted(METHODS)) | TEXTS)
    if draw(st.integers(0, 4)):
        request["params"] = draw(bent(request["params"]))
    else:
        request = draw(bent(request))
    body = draw(written(request))
    return Asked("POST", "/", "", (JSON_TYPE, *draw(HEADERS)), draw(pieces(body)))


METHODS_HTTP = st.sampled_from(["GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "get", "QUERY"])
ODD_PATHS = st.sampled_from(
    [
        "",
        "/",
        "//",
        "/tasks/",
        "/tasks//",
        "/tasks/../health",
        "/tasks/%00",
        "/tasks/%2e%2e%2fhealth",
        "/tasks/%ff%fe",
        "/tasks/x:cancel:cancel",
        "/tasks/:cancel",
        "/tasks/x:subscribe/y",
        "/tasks/x/pushNotificationConfigs/",
        "/tasks/x/pushNotificationConfigs/%00",
        "/v1",
        "/v1/",
        "/v1/v1/tasks",
        "/v1/message:send",
        "/acme/message:send",
        "/acme/acme/message:send",
        "/%2f/tasks",
        "/message:send/",
        "/message:nothing",
        "/.well-known/agent-card.json",
        "/.well-known/agent-card.json/x",
        "/health/x",
        "/metrics",
        PREFIX,
        f"{PREFIX}/",
        f"{PREFIX}/nothing",
        "/" + "x" * 3000,
        "/tasks/" + "é" * 300,
    ]
)


@st.composite
def _queries(draw: st.DrawFn) -> str:
    names = st.sampled_from(
        ["pageSize", "pageToken", "contextId", "status", "historyLength", "includeArtifacts", "statusTimestampAfter"]
    ) | st.sampled_from(["tenant", "owner", "state", "after", "limit", "since", "A2A-Version", "afterSeq", "context"])
    odd = st.sampled_from(["%", "%zz", "&&&=", "a=b=c", "\xff", "%ff", ";", "%00=%00"])
    values = st.sampled_from(["0", "1", "-1", "100", "101", "x", "", "true", "1.0", "0.3", "working", "dead"]) | TEXTS
    found = [f"{draw(names)}={quote(draw(values), safe='')}" for _ in range(draw(st.integers(0, 3)))]
    return "&".join([*found, *draw(st.lists(odd, max_size=1))])


@st.composite
def rest_requests(draw: st.DrawFn, known: dict[str, list[str]]) -> Asked:
    """A request of the REST binding with changes."""
    entry: Entry = draw(st.sampled_from([entry for entry in ENTRIES if entry.path]))
    request = entry.request(draw(request_fields(known, entry.operation)))
    method, path, query = request["method"], request["path"], request.get("query", "")
    body = request.get("body", b"")
    match draw(st.integers(0, 9)):
        case 0:
            path = draw(ODD_PATHS)
        case 1:
            method = draw(METHODS_HTTP)
        case 2 | 3:
            query = draw(_queries())
        case 4:
            place = draw(st.integers(0, len(path)))
            path = (
                path[:place] + draw(st.sampled_from(["/", "%", ":", "%00", "\xe9", "..", " ", "?", "#"])) + path[place:]
            )
        case _:
            pass
    if body:
        body = draw(written(draw(bent(json.loads(body)))))
    elif not draw(st.integers(0, 9)):
        body = draw(ODD_JSON)
    version = () if draw(st.booleans()) else (("a2a-version", entry.version.value),)
    return Asked(method, path, query, (JSON_TYPE, *version, *draw(HEADERS)), draw(pieces(body)))


@st.composite
def operations_requests(draw: st.DrawFn, known: dict[str, list[str]]) -> Asked:
    """A request of the operations API with changes."""
    route = draw(st.sampled_from(ROUTES))
    task = draw(st.sampled_from(known["task"]) | NASTY_IDS | TEXTS)
    named = dict.fromkeys(re.findall(r"{(\w+)}", route.path), "0" * 64) | {"task_id": quote(task, safe="") or "-"}
    path = PREFIX + route.path.format(**named)
    good: dict[str, Any] = {"kind": "inject", "reason": "x", "payload": {}, "seq": 1}
    body = draw(written(draw(bent({name: good[name] for name, _ in route.body if name in good}))))
    names = st.sampled_from([name for name, _ in route.query] or ["x"])
    values = st.sampled_from(["0", "1", "2", "-1", "100", "waiting", "dead", "working", "alice", "acme", ""]) | TEXTS
    query = "&".join(f"{draw(names)}={quote(draw(values), safe='')}" for _ in range(draw(st.integers(0, 3))))
    method = route.method if draw(st.integers(0, 9)) else draw(METHODS_HTTP)
    return Asked(method, path, query, (JSON_TYPE, *draw(HEADERS)), draw(pieces(body if method == "POST" else b"")))


@st.composite
def calls(draw: st.DrawFn, known: dict[str, list[str]]) -> Asked:
    """A gRPC call with changes; its path is that of the method."""
    method = draw(st.sampled_from(CALLS))
    data = request(method, draw(request_fields(known, method.operation)))
    match draw(st.integers(0, 7)):
        case 0:
            data = data[: draw(st.integers(0, len(data)))]
        case 1:
            place = draw(st.integers(0, len(data)))
            data = data[:place] + draw(st.binary(max_size=6)) + data[place + draw(st.integers(0, 3)) :]
        case 2:
            data = draw(st.binary(max_size=60))
        case 3:
            data += request(
                method, draw(request_fields(known, method.operation))
            )  # of a repeated field, the last value counts
        case _:
            pass
    odd = st.sampled_from(
        [
            ("a2a-version", "1.0"),
            ("a2a-version", "0.3"),
            ("a2a-version", "9"),
            ("after-seq", "1"),
            ("after-seq", "x"),
            ("after-seq", "99999999"),
            ("a2a-extensions", "urn:keelbolt:a2a:resume:v1"),
            ("traceparent", "00-zz-zz-01"),
            ("x-long", "y" * 3000),
        ]
    )
    metadata = draw(st.lists(odd, max_size=2)) if not draw(st.integers(0, 3)) else []
    return Asked("gRPC", method.path, "", tuple(metadata), (data,))
