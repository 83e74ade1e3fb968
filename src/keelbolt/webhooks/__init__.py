"""Webhooks: push notifications about tasks."""
