"""Random histories on an engine, compared with a model of the kernel. Needs Hypothesis."""

from __future__ import annotations

from keelbolt.conformance.kernel.histories.machine import check_histories

__all__ = ["check_histories"]
