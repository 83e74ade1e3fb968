"""Implementations with one seeded fault each, by suite. A fault names the law that must catch it."""
