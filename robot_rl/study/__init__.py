"""Studies: a grid of experiments from one file, run within a budget; tables are made from its cells."""

from robot_rl.study.plan import Arm, Cell, Method, Study, StudyError, TaskEntry, cells, read_study

__all__ = ["Arm", "Cell", "Method", "Study", "StudyError", "TaskEntry", "cells", "read_study"]
