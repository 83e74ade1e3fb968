"""Aids for tests that own time and choose the moment of a crash: `clock` and `crash`."""

from __future__ import annotations
