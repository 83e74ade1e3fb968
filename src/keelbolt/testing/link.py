"""The connection of one simulated process to a kernel that other processes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from keelbolt.errors import StorageUnreachable
from keelbolt.kernel import Claim, Kernel, Scope


class KernelLink:
    """Forwards every call to the kernel. While ``cut`` is set, calls raise StorageUnreachable instead.

    Its scopes and the scopes of its claims use the link as well.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        if self.cut and name != "watch":
            raise StorageUnreachable
        return getattr(self.kernel, name)

    def scoped(self, partition: str) -> Scope:
        return Scope(self, partition)  # type: ignore[arg-type]

    async def claim(self, *given: Any, **named: Any) -> Sequence[Claim]:
        claims = await self.__getattr__("claim")(*given, **named)
        return [replace(claim, scope=self.scoped(claim.partition)) for claim in claims]
