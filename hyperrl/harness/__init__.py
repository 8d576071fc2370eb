"""Agent programs that know nothing of hyperrl: what they are served by, and what runs them."""

__all__: list[str] = []
