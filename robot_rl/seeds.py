"""Which seeds serve what, so that no episode that counts was trained on, and how many episodes there may be.

::

    0             500,000,000                1,000,000,000
    |  evaluation  |  demonstrations            |  refinement ...
"""

DEMONSTRATION_SEEDS = 500_000_000
"""Demonstrations use seeds from here on unless told otherwise."""
TRAINING_SEEDS = 1_000_000_000
"""Refinement's episodes use seeds from here on."""
MOST_EPISODES = 1_000_000
"""Episodes of one evaluation or collection; their outcomes are held in memory."""
MOST_SEED = 2**32 - 1
"""Greatest seed that a command takes; some random generators know no greater one."""
MOST_ROWS = 1024
"""Episodes that run side by side in one process, each with a simulation of its own."""


def trained_on(seeds: range) -> str | None:
    """Say which training uses some of these seeds; None if they are free for evaluation.

    Args:
        seeds: of an evaluation, ascending.
    """
    if seeds.stop > TRAINING_SEEDS:
        return f"refinement uses seeds from {TRAINING_SEEDS:,} on"
    if seeds.stop > DEMONSTRATION_SEEDS:
        return f"demonstrations use seeds from {DEMONSTRATION_SEEDS:,} on"
    return None


def check_episodes(episodes: int) -> None:
    """Refuse a number of episodes that nothing could run.

    Raises:
        ValueError: if it is below 1 or above `MOST_EPISODES`.
    """
    if not 1 <= episodes <= MOST_EPISODES:
        raise ValueError(f"episodes is {episodes}, allowed is 1 to {MOST_EPISODES:,}")
