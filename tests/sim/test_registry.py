import gymnasium
import pytest

import sim
from sim.push_disc import PushDisc


def test_every_task_is_registered_with_gymnasium():
    for entry in sim.TASKS.values():
        assert gymnasium.spec(entry.gym_id).entry_point == entry.entry_point


@pytest.mark.parametrize("name", ["push-disc", "robot_rl/PushDisc-v0", "sim.push_disc:PushDisc"])
def test_three_names_lead_to_one_task(name):
    assert type(sim.make(name)) is PushDisc


def test_foreign_gymnasium_ids_work_too():
    env = sim.make("CartPole-v1", max_episode_steps=3)
    assert env.spec.max_episode_steps == 3


def test_unknown_name_gets_a_hint():
    with pytest.raises(sim.UnknownTaskError, match="did you mean peg-insert"):
        sim.make("peg-inser")
    with pytest.raises(sim.UnknownTaskError, match=r"known tasks: .*push-two-routes"):
        sim.make("zzzz")


def test_import_path_that_leads_nowhere_says_why():
    with pytest.raises(sim.UnknownTaskError, match="no_such_module"):
        sim.make("no_such_module:Task")
    with pytest.raises(sim.UnknownTaskError, match="Nope"):
        sim.make("sim.push_disc:Nope")
