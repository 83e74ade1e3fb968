"""`keelbolt state pauses`: the pauses that wait for a resume, one of them, and its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.state import scope_at, where
from keelbolt.cli.state_look import limit_option
from keelbolt.errors import StateNotFound

if TYPE_CHECKING:
    from datetime import datetime

    from keelbolt.state.pauses import WaitingPause

PAGE = 500


@click.group()
def pauses() -> None:
    """List, show and cancel the pauses of planners that wait for a resume. Looking at a pause does not take it.

    \b
    Example:
      keelbolt state pauses list --url sqlite:///state.db
    """


@pauses.command("list")
@where
@limit_option
@as_json
def list_(url: str, tenant: str, *, limit: int, json_output: bool) -> None:
    """List waiting pauses, the newest first.

    \b
    Example:
      keelbolt state pauses list --url sqlite:///state.db
    """
    found = asyncio.run(_listed(url, tenant, limit))
    if json_output:
        print_json({"pauses": [shown(pause) for pause in found]})
        return
    rows = [[pause.token, _reason(pause), *_times(pause), "leased" if pause.leased else ""] for pause in found]
    print_table(["token", "reason", "saved", "expires", ""], rows)


@pauses.command("show")
@click.argument("token")
@where
def show_pause(token: str, url: str, tenant: str) -> None:
    """Print a waiting pause as JSON. It stays.

    \b
    Example:
      keelbolt state pauses show 8c1f… --url sqlite:///state.db
    """

    async def look() -> WaitingPause | None:
        from keelbolt.state.pauses import waiting_pause

        async with scope_at(url, tenant) as scope:
            return await waiting_pause(scope, token=token)

    found = asyncio.run(look())
    if found is None:
        raise StateNotFound(f"no pause {token!r} waits; see keelbolt state pauses list")
    print_json({**shown(found), "payload": found.payload})


@pauses.command("cancel")
@click.argument("token")
@where
def cancel(token: str, url: str, tenant: str) -> None:
    """Remove a waiting pause, so that it can't be resumed.

    \b
    Example:
      keelbolt state pauses cancel 8c1f… --url sqlite:///state.db
    """

    async def end() -> bool:
        from keelbolt.state.pauses import cancel_pause

        async with scope_at(url, tenant) as scope:
            return await cancel_pause(scope, token=token)

    if not asyncio.run(end()):
        raise StateNotFound(f"no pause {token!r} waits; see keelbolt state pauses list")
    echo(f"cancelled {token}")


async def _listed(url: str, tenant: str, limit: int) -> list[WaitingPause]:
    from keelbolt.state.pauses import waiting_pauses

    found: list[WaitingPause] = []
    cursor: str | None = None
    async with scope_at(url, tenant) as scope:
        while len(found) < limit:
            page, cursor = await waiting_pauses(scope, limit=min(PAGE, limit - len(found)), cursor=cursor)
            found += page
            if cursor is None:
                break
    return found


def shown(pause: WaitingPause) -> dict[str, Any]:
    saved, expires = _times(pause)
    return {
        "token": pause.token,
        "reason": _reason(pause),
        "saved": saved,
        "expires": expires,
        "leased": pause.leased,
    }


def _reason(pause: WaitingPause) -> str:
    reason = pause.payload.get("reason")
    return reason if isinstance(reason, str) else ""


def _times(pause: WaitingPause) -> tuple[str, str]:
    return _text(pause.saved_at), _text(pause.expires_at)


def _text(moment: datetime | None) -> str:
    return moment.isoformat(timespec="seconds") if moment is not None else ""
