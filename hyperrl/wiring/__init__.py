"""The only package that knows both sides: environments and agents, and training."""
