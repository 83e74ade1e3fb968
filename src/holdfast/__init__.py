"""Holdfast keeps what AI agents must not lose."""
