"""Complete programs, each with a test.

A package, so that an installed package of the same name does not shadow it.
"""

from __future__ import annotations
