import sim
from sim.conformance import check_task
from sim.template_task import LiftAboveLine


def test_template_keeps_the_contract():
    check_task(LiftAboveLine)


def test_template_runs_by_import_path_and_its_expert_succeeds():
    env = sim.make("sim.template_task:LiftAboveLine")
    for seed in range(5):
        env.reset(seed=seed)
        expert = env.expert(seed)
        terminated = truncated = False
        while not (terminated or truncated):
            *_, terminated, truncated, info = env.step(expert.act())
        assert info["success"]
        assert info["height_m"] > 0
