"""``python -m hyperrl.cli``."""

from hyperrl.cli import main

main()
