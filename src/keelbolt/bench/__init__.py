"""Benchmarks that users can run on their own machine. Targets are ratios of things measured in one run."""
