"""What can be seen from outside: counters, and traces by OpenTelemetry. Off, they cost nothing per call."""
