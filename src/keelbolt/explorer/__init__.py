"""The explorer: a page to see, try, steer and understand an agent in a browser.

Plain HTML, CSS and ES modules, served from the package. The pages call the public A2A and operations APIs of their own
agent and of agents that the operator configures; so this package needs nothing of the server.
"""

from __future__ import annotations

from keelbolt.explorer.app import Explorer, checked_agent, checked_prefix

__all__ = ["Explorer", "checked_agent", "checked_prefix"]
