"""Agents: playing episodes, an environment and a policy, into trajectories."""
