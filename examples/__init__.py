"""Whole programs, each with a test.

A package, so that another one of this name that happens to be installed does not stand before it.
"""

from __future__ import annotations
