"""The operations of an HTTP API as modules: ``--from-openapi``, and ``apcore-a2a.openapi`` in apcore's configuration.

apcore-toolkit reads the document and creates the modules; each module sends the request of its operation.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from keelbolt.apcore.extensions import complaints
from keelbolt.apcore.library import Config, ModuleError, Registry
from keelbolt.errors import ExtensionsBroken, MissingExtra

logger = logging.getLogger("keelbolt.apcore")

KEYS = (
    "spec",
    "base_url",
    "prefix",
    "include",
    "exclude",
    "include_deprecated",
    "headers",
    "timeout",
    "acknowledge_unapproved_writes",
)
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
SHOWN = 10  # ids per log line
_ID = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


def openapi_backend(
    spec: str | Path | Mapping[str, Any],
    *,
    base_url: str | None = None,
    prefix: str | None = None,
    include: str | None = None,
    exclude: str | None = None,
    include_deprecated: bool = True,
    headers: dict[str, str] | None = None,
    timeout: float = 30.0,
    auth_header_factory: Callable[[], dict[str, str]] | None = None,
    registry: Any = None,
    acknowledge_unapproved_writes: bool = False,
) -> Any:
    """Return a registry with a module for each operation of an OpenAPI 3.0 or 3.1 document.

    ``spec`` is a URL, a path or the document. ``headers`` and ``timeout`` (seconds) are for reading it;
    ``auth_header_factory`` makes the headers of each call. ``include`` and ``exclude`` are regular expressions for
    module ids. If a ``registry`` is given, the modules are added to it. Raise MissingExtra without apcore-toolkit, and
    ExtensionsBroken for a document that can't be served.
    """
    try:
        from apcore_toolkit import HTTPProxyRegistryWriter  # noqa: PLC0415 - an extra
        from apcore_toolkit.openapi_scanner import OpenAPIScanner, load_spec  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("openapi", "apcore-toolkit") from error
    target = registry if registry is not None else Registry()
    known = set(target.list())
    if known and not prefix:
        raise ExtensionsBroken(
            "An OpenAPI document next to other modules needs a prefix for its ids; pass --openapi-prefix"
        )
    try:
        document = spec if isinstance(spec, Mapping) else load_spec(spec, headers=headers, timeout=timeout)
        scanned = OpenAPIScanner().scan(
            dict(document),
            include=include,
            exclude=exclude,
            base_path_prefix=prefix,
            include_deprecated=include_deprecated,
        )
    except Exception as error:  # I/O, HTTP and format errors: the toolkit has no common base class
        raise ExtensionsBroken(f"The OpenAPI document can't be read: {_brief(error)}") from error
    modules = [found for found in map(_usable, scanned) if found is not None]
    if twice := sorted(known & {module.module_id for module in modules}):
        raise ExtensionsBroken(
            f"Ids of the OpenAPI document are already used by other modules: {', '.join(twice[:SHOWN])}"
        )
    address = base_url or _server_of(document)
    if address is None:
        raise ExtensionsBroken("The OpenAPI document has no server URL; pass one with --openapi-base-url")
    try:
        written = HTTPProxyRegistryWriter(base_url=address, auth_header_factory=auth_header_factory).write(
            modules, target
        )
    except ValueError as error:
        raise ExtensionsBroken(f"The OpenAPI document can't be served: {error}") from error
    for result in written:
        if getattr(result, "verification_error", None):
            logger.warning("operation %s is skipped: %s", result.module_id, result.verification_error)
    if not acknowledge_unapproved_writes:
        _warn_of_writes(modules)
    return target


def from_settings(settings: Mapping[str, Any], registry: Any = None) -> Any:
    """Call `openapi_backend` with the keys of the section ``apcore-a2a.openapi``."""
    if unknown := sorted(settings.keys() - set(KEYS)):
        raise ExtensionsBroken(f"apcore-a2a.openapi has no key {unknown[0]!r}; the keys are {', '.join(KEYS)}")
    spec = settings.get("spec")
    if not isinstance(spec, str | Path) or not str(spec).strip():
        raise ExtensionsBroken("apcore-a2a.openapi.spec must be the URL or the path of an OpenAPI document")
    named = {name: value for name, value in settings.items() if name != "spec" and value is not None}
    return openapi_backend(spec, registry=registry, **named)


def configured_settings() -> dict[str, Any]:
    """Return the section ``apcore-a2a.openapi`` of apcore's configuration file; paths are relative to the project."""
    with complaints("apcore.config"):  # the same file is read again, and reported then, when it is served
        try:
            config = Config.load(validate=False)
        except ModuleError as error:
            raise ExtensionsBroken(f"apcore's configuration can't be read: {error.message}") from error
    found = config.get("apcore-a2a.openapi")
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ExtensionsBroken("apcore-a2a.openapi must be a mapping with the key spec")
    settings = dict(found)
    spec = settings.get("spec")
    if isinstance(spec, str) and not spec.startswith(("http://", "https://")):
        settings["spec"] = str(Path(config.project_root or ".") / spec)
    return settings


def _usable(module: Any) -> Any:
    """Return the module with a description; log a warning and return None if apcore does not accept its id."""
    for warning in getattr(module, "warnings", None) or ():
        logger.warning("operation %s: %s", module.module_id, warning)
    if _ID.fullmatch(module.module_id) is None:
        logger.warning("operation %s is skipped: apcore does not accept this id", module.module_id)
        return None
    if (module.description or "").strip():
        return module
    about = module.metadata or {}
    return replace(module, description=f"{about.get('http_method', '')} {about.get('url_path', '')}".strip())


def _server_of(document: Mapping[str, Any]) -> str | None:
    servers = document.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    url = first.get("url") if isinstance(first, Mapping) else None
    return url if isinstance(url, str) and url.startswith(("http://", "https://")) else None


def _warn_of_writes(modules: list[Any]) -> None:
    writes = [
        module.module_id
        for module in modules
        if str((module.metadata or {}).get("http_method", "")).upper() in WRITES
        and not getattr(module.annotations, "requires_approval", False)
    ]
    if writes:
        logger.warning(
            "%d operations change data and need no approval: %s. Restrict them with an ACL, or set "
            "apcore-a2a.openapi.acknowledge_unapproved_writes",
            len(writes),
            ", ".join(sorted(writes)[:SHOWN]),
        )


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
