"""Cells that cost nothing; named by the studies of the tests."""

import time


def coin(cell, out):
    """Succeeds on the first `share` of the seeds, one more per training seed."""
    good = round(cell.parameters["share"] * cell.episodes) + cell.seed
    seeds = range(cell.first_seed, cell.first_seed + cell.episodes)
    return {
        "episodes": [{"seed": s, "success": i < good, "steps": 10 + i} for i, s in enumerate(seeds)],
        "n": 1,
    }


def broken(cell, out):
    raise RuntimeError("the robot fell over")


def wrong_seeds(cell, out):
    return {"episodes": [{"seed": 0, "success": True, "steps": 1}]}


def slow(cell, out):
    """Never ends, but notes how often it was started."""
    with (out / "started").open("a") as file:
        file.write("x")
    while True:
        time.sleep(0.05)
