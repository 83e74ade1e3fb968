"""The Redis and Valkey engine."""

from __future__ import annotations

from holdfast.storage.redis.connection import Address
from holdfast.storage.redis.engine import RedisKernel

__all__ = ["Address", "RedisKernel"]
