"""The crash points, at which the chaos machine kills processes."""

from __future__ import annotations

from pathlib import Path

from keelbolt.kernel import Append, Draft
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.testing.crash import POINTS


async def test_every_crash_point_is_passed_in_order(tmp_path: Path) -> None:
    """Each commit passes the named points, in their order, and no other."""
    passed: list[str] = []
    async with SQLiteKernel(str(tmp_path / "kernel.db"), probe=passed.append) as kernel:
        for _ in range(3):
            await kernel.commit("p", Append("log", "s", (Draft("a", b""),)))
    assert passed == list(POINTS) * 3
