"""Who is calling: authenticators turn the headers of a request into a `Principal`."""

from __future__ import annotations
