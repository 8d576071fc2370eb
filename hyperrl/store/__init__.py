"""Trajectories on disk: a directory of immutable Parquet parts.

``part-<iteration>-<rank>.parquet`` holds what one rank played in one iteration, one row an episode, with
every field of :class:`~hyperrl.trajectory.Trajectory` bit for bit. Importing this package loads pyarrow;
importing :mod:`hyperrl` does not.
"""

from hyperrl.store.jsonl import export_jsonl, import_jsonl
from hyperrl.store.reader import (
    EpisodeRow,
    list_episodes,
    list_iterations,
    read_tokenizers,
    read_trajectories,
)
from hyperrl.store.writer import TrajectoryWriter

__all__ = [
    "EpisodeRow",
    "TrajectoryWriter",
    "export_jsonl",
    "import_jsonl",
    "list_episodes",
    "list_iterations",
    "read_tokenizers",
    "read_trajectories",
]
