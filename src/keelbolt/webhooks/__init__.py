"""Webhooks: where clients want to be told about their tasks."""
