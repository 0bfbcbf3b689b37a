"""What a validator finds in episodes, for tests of each kind of damage."""

from dataclasses import replace

from data.validate import Thresholds, Validator
from tests.data.validate import robot


def findings(*episodes, features=robot.FEATURES, action_spec=robot.ACTION_SPEC, **thresholds):
    validator = Validator(features, action_spec, Thresholds(**thresholds))
    for episode in episodes:
        validator.check(episode)
    return list(validator.report().findings)


def only(found):
    """The one finding there is."""
    assert len(found) == 1, [(finding.kind, finding.place, finding.message) for finding in found]
    return found[0]


def observed(episode, key, rows):
    return replace(episode, observations={**episode.observations, key: rows})


def changed(episode, key, at, value):
    rows = episode.observations[key].copy()
    rows[at] = value
    return observed(episode, key, rows)
