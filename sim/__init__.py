"""MuJoCo tasks behind the Gymnasium contract: importing registers them, `make` builds one by name."""

from sim.gl import choose_backend
from sim.registry import TASKS, TaskEntry, UnknownTaskError, make, register_tasks, resolve

__all__ = ["TASKS", "TaskEntry", "UnknownTaskError", "make", "register_tasks", "resolve"]

choose_backend()
register_tasks()
