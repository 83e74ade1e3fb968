"""The explorer: one page to see, try, steer and understand an agent in a browser.

Plain HTML, CSS and ES modules, served from the package. The pages call the public A2A and operations APIs of the agent
beside them, and of agents that the operator names; so this package needs nothing of the server that shows them.
"""

from __future__ import annotations

from keelbolt.explorer.app import Explorer, checked_agent, checked_prefix

__all__ = ["Explorer", "checked_agent", "checked_prefix"]
