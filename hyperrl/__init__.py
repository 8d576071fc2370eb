"""hyperrl: environments, agents and training for LLM agents, token-first."""

__version__ = "0.1.0.dev0"
