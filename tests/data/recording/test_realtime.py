import gc
import weakref

import pytest

from data.recording.realtime import realtime


class Node:
    def __init__(self):
        self.itself = self


@pytest.fixture(params=[True, False])
def on(request):
    if not request.param:
        gc.disable()
    yield request.param
    gc.enable()


def test_no_collection_stops_a_loop_and_afterwards_all_is_as_before(on):
    collections = []
    with realtime():
        gc.callbacks.append(lambda phase, info: collections.append(phase))
        ring = weakref.ref(Node())
        kept = [[i] for i in range(5000)]
        assert not collections
        assert ring() is not None
        assert gc.get_freeze_count() > len(kept)
    gc.callbacks.pop()
    assert gc.isenabled() is on
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert ring() is None


def test_a_loop_that_fails_leaves_all_as_before(on):
    with pytest.raises(ZeroDivisionError), realtime():
        1 / 0  # noqa: B018 - what a loop may do
    assert gc.isenabled() is on
    assert gc.get_freeze_count() == 0
