"""The Redis and Valkey engine."""

from __future__ import annotations

from keelbolt.kernel.redis.connection import RedisAddress, address_of
from keelbolt.kernel.redis.engine import RedisKernel

__all__ = ["RedisAddress", "RedisKernel", "address_of"]
