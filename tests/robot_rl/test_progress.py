import logging

import pytest
from rich.console import Console

from robot_rl import progress


def test_a_stage_outside_a_terminal_is_one_plain_log_line(caplog, capsys):
    with caplog.at_level(logging.INFO), progress.stage("Collecting", total=4) as bar:
        bar.advance(3, "2 succeeded")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("Collecting: 3 of 4 (2 succeeded) in ")
    assert capsys.readouterr() == ("", "")


def test_a_stage_that_counts_nothing_says_how_long_it_took(caplog):
    with caplog.at_level(logging.INFO), progress.stage("Writing the report"):
        pass
    assert caplog.messages[0].startswith("Writing the report in ")


def test_in_a_terminal_nested_stages_share_one_display(monkeypatch, capsys):
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=120)
    )
    with progress.stage("Outer", total=1) as outer:
        with progress.stage("Inner", total=2) as inner:
            inner.update(2)
        outer.advance()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Outer" in printed.err
    assert "Inner" in printed.err


def test_track_counts_items(caplog):
    with caplog.at_level(logging.INFO):
        assert list(progress.track([1, 2, 3], "Reading")) == [1, 2, 3]
    assert caplog.messages[0].startswith("Reading: 3 in ")


def test_an_interrupted_stage_does_not_claim_to_be_done(caplog):
    def interrupted():
        with progress.stage("Training", total=2):
            raise KeyboardInterrupt

    with caplog.at_level(logging.INFO), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert caplog.messages == []
