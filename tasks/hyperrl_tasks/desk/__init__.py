"""Desk: serve a customer of a shop, with tools, rules and a simulated user."""

from hyperrl_tasks.desk.baseline import baseline
from hyperrl_tasks.desk.env import Desk
from hyperrl_tasks.desk.model_user import ModelUserDesk

__all__ = ["Desk", "ModelUserDesk", "baseline"]
