"""What is particular to each agent program that hyperrl runs; one module a program."""

__all__: list[str] = []
