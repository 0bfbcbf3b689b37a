import json
import tomllib

import pytest

from data.config import from_dict, to_dict
from robot_rl.cli.parsing import parse
from robot_rl.collect import CollectConfig
from robot_rl.correct.residual_recipe import RefineConfig
from robot_rl.demo import DemoConfig, collection, evaluation, refinement
from robot_rl.evaluate import EvaluateConfig
from robot_rl.task_settings import TaskSettings, read_settings
from sim.shifts import Shifts

HEAVY = Shifts(payload_kg=0.3)
WORDS = ["--options", "limit", "3", "name", "x", "--shifts.payload-kg", "0.3", "--cameras", "front", "wrist"]
BOTH = {"limit": 3, "name": "x", "shifts": HEAVY, "cameras": ("front", "wrist")}


@pytest.mark.parametrize("config", [CollectConfig, RefineConfig, EvaluateConfig, DemoConfig])
def test_every_command_with_a_task_takes_the_same_words_for_it(config, tmp_path):
    place = [] if config is EvaluateConfig else ["--out", str(tmp_path)]
    base = ["--policy", str(tmp_path)] if config in (RefineConfig, EvaluateConfig) else []
    chosen = parse(config, [*place, *base, *WORDS], "x")
    assert chosen.task_arguments == BOTH
    assert from_dict(config, json.loads(json.dumps(to_dict(chosen)))) == chosen


def test_the_demo_hands_its_settings_to_every_stage(tmp_path):
    demo = DemoConfig(options={"limit": 3}, shifts=HEAVY, cameras=("front",))
    stages = [
        collection(demo, tmp_path),
        refinement(demo, tmp_path, tmp_path),
        evaluation(demo, tmp_path, None),
    ]
    assert [stage.task_settings for stage in stages] == [demo.task_settings] * 3


def test_the_file_of_a_study_sets_shifts_and_cameras_beside_the_options():
    file = 'options = { limit = 3, shifts = { payload_kg = 0.3 }, cameras = ["front"] }'
    settings = read_settings(tomllib.loads(file)["options"])
    assert settings == TaskSettings(options={"limit": 3}, shifts=HEAVY, cameras=("front",))


def test_a_list_of_names_is_what_the_command_line_says_with_commas():
    file = 'options = { bins = ["red", "blue"], told = "other" }'
    settings = read_settings(tomllib.loads(file)["options"])
    assert settings == parse(TaskSettings, ["--options", "bins", "red,blue", "told", "other"], "x")


@pytest.mark.parametrize(
    "options", [{"shifts": {"payload": 0.3}}, {"shifts": 3}, {"cameras": "front"}, {"a": [1]}]
)
def test_settings_of_another_type_are_refused(options):
    with pytest.raises((ValueError, TypeError), match=r"TaskSettings|payload_kg|cameras|shifts"):
        read_settings(options)


def test_an_option_that_has_a_type_of_its_own_is_refused_among_the_others():
    with pytest.raises(ValueError, match="options name cameras: give --cameras"):
        TaskSettings(options={"cameras": "front"})
