"""MuJoCo tasks behind the Gymnasium contract: importing registers them, `make` builds one by name."""

from sim.registry import TASKS, TaskEntry, UnknownTaskError, make, register_tasks, resolve

__all__ = ["TASKS", "TaskEntry", "UnknownTaskError", "make", "register_tasks", "resolve"]

register_tasks()
