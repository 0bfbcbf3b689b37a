import numpy as np
import pytest

from robot_rl.correct.corrector import CorrectorInput
from robot_rl.correct.history import History
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from robot_rl.study.spiral_search import ESTIMATE, STATE, WRENCH, Phase, Search, SpiralConfig, SpiralSearch

CONFIG = SpiralConfig(
    contact_n=2.0,
    pitch_m=0.002,
    start_radius_m=0.001,
    end_radius_m=0.004,
    speed_m=0.001,
    press_m=0.0005,
    drop_m=0.001,
    sink_m=0.003,
)
HOLE = np.array([0.5, 0.0, 0.52])


def beside(x, y, z):
    """A point relative to the hole, m."""
    return HOLE + np.array([x, y, z])


def request(tools, pushes, lead=(0.0, 0.0, 0.0)):
    rows = len(tools)
    state = np.zeros((rows, 17), np.float32)
    state[:, :3], state[:, 6:9] = tools, lead
    wrench = np.zeros((rows, 6), np.float32)
    wrench[:, 2] = -np.asarray(pushes)
    return CorrectorInput(
        observation={STATE: state, ESTIMATE: (HOLE - tools).astype(np.float32), WRENCH: wrench},
        base_chunk=np.full((rows, 8, 3), 0.001, np.float32),
        index=np.zeros(rows, np.int64),
        history=History((), 0, 3),
        deterministic=True,
        generators=(),
    )


def started(rows=1):
    search = SpiralSearch(CONFIG)
    search.begin_episode(np.arange(rows))
    return search


def test_without_contact_the_base_goes_on_to_the_bit():
    asked = request([beside(0, 0, 0.02)], [1.9])
    assert started().correct(asked).action.tobytes() == asked.base_action.tobytes()


def test_at_contact_the_target_goes_onto_the_spiral_and_below_the_tip():
    tool, lead = beside(0.0004, 0, 0), (0.0002, 0, -0.0001)
    action = started().correct(request([tool], [3.0], lead)).action[0]
    target = tool + lead + action
    # It starts half a turn out (1 mm of a pitch of 2 mm) and goes on by 1 mm / hypot(pitch / 2 pi, 1 mm).
    angle = np.pi + 0.001 / np.hypot(0.001 / np.pi, 0.001)
    radius = 0.001 * angle / np.pi
    wanted = beside(radius * np.cos(angle), radius * np.sin(angle), -0.0005)
    np.testing.assert_allclose(target, wanted, atol=1e-6)


def test_turns_lie_one_pitch_apart_and_the_pace_is_kept():
    search = Search(CONFIG, Phase.SEARCH, surface_m=HOLE[2])
    search.angle_rad = np.pi
    points = np.array([search.aim(HOLE, HOLE, 3.0)[:2] - HOLE[:2] for _ in range(12)])
    radius = np.hypot(*points.T)
    angle = np.unwrap(np.arctan2(points[:, 1], points[:, 0]))
    np.testing.assert_allclose(np.diff(radius) / np.diff(angle), 0.002 / (2 * np.pi), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(np.diff(points, axis=0), axis=1), 0.001, rtol=0.1)


def test_beyond_its_end_it_starts_again_from_the_middle():
    search = Search(CONFIG, Phase.SEARCH, surface_m=HOLE[2])
    points = np.array([search.aim(HOLE, HOLE, 3.0)[:2] - HOLE[:2] for _ in range(100)])
    radius = np.hypot(*points.T)
    assert radius.max() <= 0.004
    assert (radius[20:] == 0.0).any()


def test_a_tip_that_drops_sinks_straight_and_one_that_springs_out_searches_on():
    search = started()
    search.correct(request([HOLE], [3.0]))
    low = beside(0.0005, 0, -0.0015)
    found = search.correct(request([low], [0.0]))
    np.testing.assert_allclose(found.action[0], [0, 0, -0.003], atol=1e-6)
    assert found.info["phase"][0] == Phase.SINK
    assert search.correct(request([HOLE], [5.0])).info["phase"][0] == Phase.SEARCH


def test_rows_search_each_for_itself_and_forget_at_the_start_of_an_episode():
    search = started(2)
    tools = [HOLE, beside(0, 0, 0.01)]
    assert search.correct(request(tools, [3.0, 0.0])).info["phase"].tolist() == [Phase.SEARCH, Phase.FOLLOW]
    search.begin_episode(np.array([0]))
    assert search.correct(request(tools, [0.0, 0.0])).info["phase"].tolist() == [Phase.FOLLOW, Phase.FOLLOW]


def test_a_gain_of_zero_returns_the_base_action_to_the_bit():
    asked = request([HOLE], [3.0])
    assert started().correct(asked, gain=0.0).action.tobytes() == asked.base_action.tobytes()


def test_a_missing_sensor_is_named():
    asked = request([HOLE], [3.0])
    del asked.observation[WRENCH]
    with pytest.raises(
        ValueError, match=rf"The corrector reads \['{WRENCH}'\], which the robot does not give"
    ):
        started().correct(asked)


@pytest.mark.parametrize("changes", [{"pitch_m": 0.0}, {"start_radius_m": 0.01}])
def test_settings_that_cannot_search_are_refused(changes):
    with pytest.raises(ValueError, match="must be"):
        SpiralConfig(**changes)


def test_saved_and_loaded_it_searches_alike(tmp_path):
    save_refiner(tmp_path, Refiner(correct=SpiralSearch(CONFIG)))
    assert load_refiner(tmp_path).correct.config == CONFIG
