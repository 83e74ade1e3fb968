"""Suites that anybody can run on their own engine: `holdfast.conformance.storage` states the laws of the kernel."""
