import json

import numpy as np
import pytest

from robot_rl import report
from robot_rl.evaluate import EvaluateConfig, evaluate
from robot_rl.report import frames
from robot_rl.report.build import write_report
from robot_rl.report.frames import RenderingError, Replay, replay_frames, side_by_side
from robot_rl.report.material import bands, choose_seed, read_material, record_shown
from robot_rl.report.video import encode, media_type
from robot_rl.runs import RunDirectory, RunError
from tests.robot_rl.toy import TOY, save_toy_policy


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run whose second arm has more time, so that it gains seeds."""
    folder = tmp_path_factory.mktemp("report")
    policy = save_toy_policy(folder / "policy")
    common = {"policy": policy, "task": TOY, "episodes": 20, "seed": 5, "workers": 1, "batch": 4}
    base = evaluate(EvaluateConfig(**common, options={"limit": 2})).to_json()
    refined = evaluate(EvaluateConfig(**common)).to_json()
    with RunDirectory.create(folder / "run", {"task": TOY}, kind="demo") as run:
        for step in range(0, 200, 20):
            run.log(step, {"success": step / 200, "residual_rms": 0.1})
        digest = {"base_hash_before": "abc", "base_hash_after": "abc"}
        run.write_json("result.json", {"base": base, "refined": refined, "env_steps": 200, **digest})
    record_shown(folder / "run", base, refined)
    return folder / "run"


def test_the_page_opens_with_the_result_and_proves_that_the_base_did_not_change(finished):
    result = json.loads((finished / "result.json").read_text())
    text = write_report(finished, video=False).read_text()
    before, after = (f"{100 * result[arm]['success_rate']:g}" for arm in ("base", "refined"))
    assert f"<h1>From {before}\u2009% to {after}\u2009% success</h1>" in text
    assert "The weights of the base policy did not change." in text
    assert "unchanged" in text
    assert text.count("<svg") == 4
    assert "http" not in text.replace("http://www.w3.org/", "")


def test_a_changed_base_is_shouted_about(finished, tmp_path):
    result = json.loads((finished / "result.json").read_text())
    run = RunDirectory.create(tmp_path / "run", {"task": TOY}, kind="demo")
    run.write_json("result.json", result | {"base_hash_after": "other"})
    text = write_report(tmp_path / "run", video=False).read_text()
    assert "CHANGED" in text
    assert "did not change" not in text


def test_a_refinement_without_evaluation_shows_how_it_learned(tmp_path):
    with RunDirectory.create(tmp_path / "run", {"task": TOY}, kind="refine") as run:
        for step in range(0, 200, 20):
            run.log(step, {"success": step / 200})
        run.write_json("result.json", {"env_steps": 12345, "episodes": 40, "wall_seconds": 75.0})
    text = write_report(tmp_path / "run").read_text()
    assert f"<h1>Refinement on {TOY}</h1>" in text
    assert "12,345 environment steps, 40 episodes, 1:15 min." in text
    assert "Success while learning" in text
    assert "Made with robot-rl" in text


def test_the_video_shows_a_seed_that_failed_before_and_succeeds_after(finished, monkeypatch):
    monkeypatch.setattr(
        "robot_rl.report.build.render", lambda replays: [replay_frames(one) for one in replays]
    )
    text = write_report(finished).read_text()
    result = json.loads((finished / "result.json").read_text())
    assert f"Seed {choose_seed(result['base'], result['refined'])}," in text
    assert "before: failure after 2 steps" in text
    assert f'src="data:{media_type()};base64,' in text


def test_without_opengl_the_page_says_so_and_goes_without_a_video(finished, monkeypatch):
    def broken(replays):
        raise RenderingError("apt-get install libegl1")

    monkeypatch.setattr("robot_rl.report.build.render", broken)
    text = write_report(finished).read_text()
    assert "No video: apt-get install libegl1" in text
    assert "<video" not in text


def test_a_run_without_result_is_refused(tmp_path):
    RunDirectory.create(tmp_path / "run", {"task": TOY}, kind="demo")
    with pytest.raises(RunError, match="did not finish"):
        write_report(tmp_path / "run")


def test_recorded_episodes_are_the_wave_of_the_chosen_seed(finished):
    material = read_material(finished)
    seeds = [[episode.seed for episode in material.episodes[arm]] for arm in ("base", "refined")]
    assert seeds[0] == seeds[1]
    assert len(seeds[0]) == 4
    assert choose_seed(material.result["base"], material.result["refined"]) in seeds[0]


def test_the_chosen_seed_is_the_median_of_those_that_were_gained():
    def arm(**steps):
        return {
            "episodes": [{"seed": int(k[1:]), "success": v > 0, "steps": abs(v)} for k, v in steps.items()]
        }

    base, refined = arm(s1=-9, s2=-9, s3=-9, s4=5), arm(s1=2, s2=7, s3=4, s4=1)
    assert choose_seed(base, refined) == 3
    # Seeds are counted, not lengths: three that take 2 steps outweigh one that takes 9.
    assert choose_seed(arm(s1=-9, s2=-9, s3=-9, s4=-9), arm(s1=2, s2=9, s3=2, s4=2)) == 3
    assert choose_seed(base, base) is None


def test_a_replay_that_ends_otherwise_is_refused():
    replay = Replay(TOY, {}, seed=5, actions=np.zeros((3, 2)), success=True, size=(8, 8))
    with pytest.raises(RenderingError, match="seed 5"):
        replay_frames(replay)


def test_the_first_and_the_last_step_are_always_shown():
    replay = Replay(TOY, {}, seed=5, actions=np.zeros((5, 2)), success=False, size=(8, 8), every=2)
    assert len(replay_frames(replay)) == 4


def test_halves_of_a_video_wait_for_each_other_and_end_with_the_outcome():
    left, right = [[np.full((32, 32, 3), shade, np.uint8)] * n for shade, n in ((10, 2), (20, 4))]
    joined = side_by_side(left, right, (False, True), hold=1)
    assert len(joined) == 5
    assert joined[0].shape == (32, 64 + frames.BORDER, 3)
    assert joined[1][0, 0].tolist() == [10, 10, 10]
    assert joined[4][0, 0].tolist() == list(frames.BAD)
    assert joined[4][0, -1].tolist() == list(frames.GOOD)


def test_a_video_can_be_read_back():
    import io

    import av

    content = encode([np.full((33, 48, 3), 40 * n, np.uint8) for n in range(5)], 10)
    with av.open(io.BytesIO(content)) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert [picture.shape for picture in pictures] == [(32, 48, 3)] * 5
    assert abs(int(pictures[2].mean()) - 80) < 6


def test_bands_end_where_fewer_than_three_episodes_go_on():
    episodes = [range(n) for n in (5, 3, 4, 2)]
    _, middle, _ = bands(episodes, [np.full(len(e), float(n)) for n, e in enumerate(episodes)])
    assert middle.tolist() == [1.5, 1.5, 1.0]
    assert bands(episodes[:2], []).shape == (3, 0)


def test_the_package_ships_its_style():
    from importlib.resources import files

    assert files(report).joinpath("style.css").is_file()
