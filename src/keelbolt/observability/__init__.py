"""Metrics, and traces by OpenTelemetry. When they are off, they cost nothing per call."""
