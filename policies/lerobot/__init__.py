"""Policies trained with LeRobot 0.6.1, frozen and opened for guidance; the only importer of its policies."""
