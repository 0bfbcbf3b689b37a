"""Stores that tests start from."""

from data.store import EpisodeStore
from tests.data.validate import robot


def stored(path, episodes, **declared):
    """A store of these episodes; `declared` are features and the action specification."""
    made = EpisodeStore(path, **declared)
    for episode in episodes:
        made.write(episode)
    return made


def robots_store(path, episodes=()):
    """A store that declares what the made-up robot has."""
    return stored(path, episodes, features=robot.FEATURES, action_spec=robot.ACTION_SPEC)
