"""Requests to addresses that a client specified: webhooks and downloads. Only public addresses are allowed."""
