import functools

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import sim


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_gymnasiums_vector_environments_equal_single_ones(kind):
    """Two rows with their own seeds behave as two environments alone, and report truncation per row."""
    make = functools.partial(sim.make, "push-disc")
    vector = kind([make, make], autoreset_mode=AutoresetMode.DISABLED)
    singles = [make(), make()]
    observations, _ = vector.reset(seed=[3, 4])
    expected = [env.reset(seed=seed)[0] for env, seed in zip(singles, (3, 4), strict=True)]
    actions = np.random.default_rng(0).uniform(-0.03, 0.03, (25, 2, 2)).astype(np.float32)
    try:
        for action in actions:
            for row in range(2):
                for key in expected[row]:
                    np.testing.assert_array_equal(observations[key][row], expected[row][key])
            observations, _, terminated, truncated, _ = vector.step(action)
            expected = [env.step(a)[0] for env, a in zip(singles, action, strict=True)]
        assert truncated.tolist() == [True, True]
        assert terminated.tolist() == [False, False]
    finally:
        vector.close()


def test_rows_of_a_vector_share_one_compiled_model():
    vector = SyncVectorEnv([functools.partial(sim.make, "peg-insert")] * 3)
    assert len({id(env.unwrapped.model) for env in vector.envs}) == 1
    vector.reset(seed=0)
    vector.step(np.zeros((3, 3), np.float32))
    vector.close()
