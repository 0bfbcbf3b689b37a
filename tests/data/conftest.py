"""What several tests of the store start from."""

import pytest

from tests.data.episodes import episode
from tests.data.stores import stored


@pytest.fixture
def store(tmp_path):
    given = [episode(id_, steps=7 + seed, seed=seed) for seed, id_ in enumerate(["a", "b", "c"])]
    return stored(tmp_path / "demos", given)
