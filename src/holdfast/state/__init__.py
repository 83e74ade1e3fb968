"""The state of agents: events, bindings, pauses, memory, tasks, updates, steering, trajectories and artifacts."""
