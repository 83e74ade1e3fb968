"""The Redis and Valkey engine."""

from __future__ import annotations

from keelbolt.storage.redis.address import RedisAddress, address_of
from keelbolt.storage.redis.engine import RedisKernel

__all__ = ["RedisAddress", "RedisKernel", "address_of"]
