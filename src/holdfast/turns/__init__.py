"""Runs agent turns over a checked storage contract of 27 callbacks, with a durable adapter of its own."""
