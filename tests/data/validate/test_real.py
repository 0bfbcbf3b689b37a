"""What is found in recordings that others made."""

from data.validate import Kind, Severity, validate


def test_a_real_arm_repeats_and_its_commands_lead(real_data):
    report = validate(real_data / "lerobot_v3_piper", options={"cameras": False})
    kinds = {finding.kind for finding in report.findings}
    assert kinds == {Kind.OUTCOME, Kind.REPEATS, Kind.LAST_OBSERVATION, Kind.LEAD}
    assert [f.kind for f in report.findings if f.severity is not Severity.NOTE] == [Kind.OUTCOME]
    lead = {f.dimension: f.message for f in report.findings if f.kind is Kind.LEAD}
    assert set(lead) == {"joint4.pos", "joint5.pos"}
    assert "-21.4" in lead["joint4.pos"]
    assert "-28.2" in lead["joint5.pos"]
    assert report.measured["lag_steps"] == 1


def test_a_robot_without_times_has_no_more_findings_than_that(real_data):
    report = validate(real_data / "d4rl_style/10_episodes.hdf5")
    assert {f.kind for f in report.findings} == {Kind.OUTCOME, Kind.NO_TIMES}


def test_sets_whose_episode_table_is_missing_are_reported(real_data):
    for folder in sorted((real_data / "lerobot_invalid").iterdir()):
        report = validate(folder)
        assert [f.kind for f in report.findings] == [Kind.DAMAGED]
        assert "episodes" in report.findings[0].message
