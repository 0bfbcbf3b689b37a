"""Finding the critic that a folder names, whoever wrote it."""

import numpy as np
import pytest

from robot_rl.critics.curves import open_critic
from tests.data.episodes import episode
from tests.robot_rl.countdown import save_countdown


def test_a_critic_of_ones_own_is_found_by_its_class(tmp_path):
    curves = open_critic(save_countdown(tmp_path, 0.5)).value_curves(episode(steps=3))
    np.testing.assert_array_equal(curves["executed/left"], [0.25, 0.5, 1.0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"kind": "train"}',
            "of kind 'train', which has no critic; these have one: refine, or module:Class",
        ),
        ('{"kind": "refin"}', "did you mean 'refine'"),
        ('{"kind": "no_such_module:Critic"}', "'no_such_module:Critic' cannot be imported"),
        ('{"kind": "json:JSONDecoder"}', "lacks open or value_curves"),
        ('{"gamma": 1}', "does not say which kind"),
        ("[]", "does not say which kind"),
        ("{", "does not say which kind"),
    ],
)
def test_a_folder_that_names_no_critic_says_what_it_names(tmp_path, content, message):
    (tmp_path / "critic.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        open_critic(tmp_path)


def test_a_folder_with_nothing_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no critic"):
        open_critic(tmp_path / "nothing")
