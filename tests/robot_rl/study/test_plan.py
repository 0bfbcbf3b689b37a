import dataclasses
import json
from pathlib import Path

import pytest

from robot_rl.study.plan import Arm, Method, Study, StudyError, TaskEntry, cells, read_study

TIER_1 = Study(
    name="touch",
    tier=1,
    methods=(Method("residual", "module:function", {"width": 128}),),
    tasks=(TaskEntry("reach"), TaskEntry("push-disc")),
    seeds=(0, 1, 2),
    episodes=300,
    arms=(Arm("full"), Arm("no touch", {"width": 64}, control=True)),
)


def test_the_grid_is_every_combination_with_the_arms_of_a_seed_together():
    grid = cells(TIER_1)
    assert len(grid) == 3 * 2 * 1 * 2
    assert [(cell.seed, cell.task, cell.arm) for cell in grid[:3]] == [
        (0, "reach", "full"),
        (0, "reach", "no touch"),
        (0, "push-disc", "full"),
    ]


def test_an_arm_may_be_for_some_methods_only():
    methods = (*TIER_1.methods, Method("base", "module:function"))
    arms = (Arm("full"), Arm("no touch", control=True, methods=("residual",)))
    made = dataclasses.replace(TIER_1, methods=methods, arms=arms, tasks=(TaskEntry("reach"),))
    assert [(cell.method, cell.arm) for cell in cells(made) if cell.seed == 0] == [
        ("residual", "full"),
        ("residual", "no touch"),
        ("base", "full"),
    ]
    with pytest.raises(StudyError, match=r"names methods \['resdual'\], the study has"):
        dataclasses.replace(made, arms=(*arms, Arm("x", methods=("resdual",))))


def test_an_arm_puts_its_parameters_over_the_methods():
    assert [cell.parameters["width"] for cell in cells(TIER_1)[:2]] == [128, 64]


def test_a_changed_setting_makes_a_new_cell_and_a_renamed_arm_does_not():
    renamed = dataclasses.replace(TIER_1, arms=(Arm("all", control=True), *TIER_1.arms[1:]))
    changed = dataclasses.replace(TIER_1, episodes=301)
    assert cells(renamed)[0].config_hash == cells(TIER_1)[0].config_hash
    assert cells(changed)[0].config_hash != cells(TIER_1)[0].config_hash
    assert len({cell.id for cell in cells(TIER_1)}) == 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tier": 3}, "tier is 3"),
        ({"seeds": (0, 1)}, "needs 3 training seeds, the file gives 2"),
        ({"episodes": 299}, "needs 300 episodes"),
        ({"arms": (Arm("full"),)}, "needs a control"),
        ({"seeds": (0, 1, 1)}, "each once"),
        ({"name": "../x"}, "names a folder"),
        ({"tier": 2, "episodes": 99}, "needs 100 episodes"),
    ],
)
def test_a_tier_is_refused_what_it_does_not_carry(changes, message):
    with pytest.raises(StudyError, match=message):
        dataclasses.replace(TIER_1, **changes)


def test_tier_2_takes_one_seed_and_no_control():
    dataclasses.replace(TIER_1, tier=2, seeds=(0,), episodes=100, arms=(Arm("full"),))


def test_toml_and_json_say_the_same(tmp_path):
    toml = tmp_path / "study.toml"
    toml.write_text(
        'name = "x"\ntier = 2\nseeds = [4]\nepisodes = 100\n[[tasks]]\nname = "reach"\n'
        '[[methods]]\nname = "m"\nrun = "a:b"\nparameters = { env_steps = 10 }\n'
    )
    plain = {
        "name": "x",
        "tier": 2,
        "seeds": [4],
        "episodes": 100,
        "tasks": [{"name": "reach"}],
        "methods": [{"name": "m", "run": "a:b", "parameters": {"env_steps": 10}}],
    }
    (tmp_path / "study.json").write_text(json.dumps(plain))
    assert read_study(toml) == read_study(tmp_path / "study.json")
    assert read_study(toml).methods[0].parameters == {"env_steps": 10}


def test_mistakes_in_the_file_are_named(tmp_path):
    file = tmp_path / "study.json"
    with pytest.raises(StudyError, match="does not exist"):
        read_study(file)
    file.write_text("{")
    with pytest.raises(StudyError, match="is not JSON"):
        read_study(file)
    file.write_text(json.dumps({"name": "x", "teir": 1}))
    with pytest.raises(ValueError, match="did you mean 'tier'"):
        read_study(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe", "is not TOML"), (b'name = "x\n', "is not TOML"), (b"", "is empty")],
)
def test_a_file_that_holds_no_study_is_named(tmp_path, content, message):
    file = tmp_path / "s.toml"
    file.write_bytes(content)
    with pytest.raises(StudyError, match=f"s.toml {message}"):
        read_study(file)


def test_what_is_no_file_is_no_study(tmp_path):
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(StudyError, match=f"{path} is a folder or device: give a TOML or JSON file"):
            read_study(path)


def test_the_example_in_the_documentation_is_a_valid_study(tmp_path):
    text = (Path(__file__).parents[3] / "docs/study.md").read_text()
    (tmp_path / "s.toml").write_text(text.partition("```toml\n")[2].partition("```")[0])
    study = read_study(tmp_path / "s.toml")
    assert len(cells(study)) == 2 * len(study.seeds) == 6
