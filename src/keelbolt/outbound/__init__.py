"""Requests to addresses that a client named: webhooks and downloads. Only public addresses."""
