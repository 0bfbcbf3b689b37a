"""What several tests of the store start from."""

import pytest

from data.store import EpisodeStore
from tests.data.episodes import episode


@pytest.fixture
def store(tmp_path):
    made = EpisodeStore(tmp_path / "demos")
    for seed, id_ in enumerate(["a", "b", "c"]):
        made.write(episode(id_, steps=7 + seed, seed=seed))
    return made
