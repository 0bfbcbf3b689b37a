"""`robot-rl refine rtc` writes what evaluation loads, for the base it was made for."""

from robot_rl.cli import main
from robot_rl.guide.real_time import RealTimeChunking
from robot_rl.parts import load_refiner
from tests.robot_rl.toy import save_toy_policy


def test_the_command_writes_a_refiner_of_the_policy(tmp_path, capsys):
    base = save_toy_policy(tmp_path / "base")
    words = ["--policy", str(base), "--out", str(tmp_path / "rtc"), "--chunking.schedule", "linear"]
    assert main(["refine", "rtc", *words]) == 0
    refiner = load_refiner(tmp_path / "rtc")
    (hook,) = refiner.hooks
    assert isinstance(hook, RealTimeChunking)
    assert hook.config.schedule == "linear"
    assert refiner.base_hash
    assert "robot-rl evaluate" in capsys.readouterr().out
