"""An engine that is declared shared, but has one file per process."""

from __future__ import annotations

import os
from collections.abc import Sequence

from keelbolt.conformance.kernel import KernelPlace, KernelSubject
from keelbolt.kernel import open_storage
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.records import Collection


def make(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    return open_storage(f"sqlite:///{place.directory}/{os.getpid()}.db", declare=declare)


ALONE = KernelSubject("EachProcessIsAlone", make, persistent=True, shared=True)
