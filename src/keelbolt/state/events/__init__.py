"""The logs of a StateStore: history, planner events, trajectories, updates and steering."""
