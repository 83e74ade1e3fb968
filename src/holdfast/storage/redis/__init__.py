"""The Redis and Valkey engine."""

from __future__ import annotations

from holdfast.storage.redis.address import Address, address_of
from holdfast.storage.redis.engine import RedisKernel

__all__ = ["Address", "RedisKernel", "address_of"]
