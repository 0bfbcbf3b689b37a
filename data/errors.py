"""What can be wrong with stored data; every message names the episode or file and the remedy."""


class StoreError(Exception):
    """A store of episodes cannot be read or written."""


class DamagedEpisodeError(StoreError):
    """A file of an episode is missing, cut short or changed; the other episodes stay readable."""


class LockedStoreError(StoreError):
    """Somebody else is writing to the store."""


class DatasetError(ValueError):
    """A folder is no dataset of a form that can be read."""


class LengthError(ValueError):
    """Parts of an episode that must have one length have several."""
