import logging
import os
import warnings

import pytest

from sim.undisturbed import undisturbed


def test_nothing_of_what_runs_inside_is_left(capsys, caplog, monkeypatch):
    monkeypatch.setenv("SIM_TEST_KEPT", "before")
    monkeypatch.delenv("SIM_TEST_NEW", raising=False)
    logger = logging.getLogger("somebody")
    with undisturbed():
        print("Hello from the community")  # noqa: T201 - what is tested
        warnings.warn("deprecated", DeprecationWarning, stacklevel=1)
        logger.warning("no private settings")
        os.environ["SIM_TEST_KEPT"] = "changed"
        os.environ["SIM_TEST_NEW"] = "left behind"
    assert capsys.readouterr().out == ""
    assert caplog.records == []
    assert os.environ["SIM_TEST_KEPT"] == "before"
    assert "SIM_TEST_NEW" not in os.environ
    logger.warning("afterwards")
    assert [record.message for record in caplog.records] == ["afterwards"]
    with pytest.warns(UserWarning, match="afterwards"):
        warnings.warn("afterwards", UserWarning, stacklevel=1)


def fails():
    with undisturbed():
        os.environ["SIM_TEST_KEPT"] = "changed"
        raise ImportError("missing")


def test_errors_pass_and_settings_come_back(monkeypatch):
    monkeypatch.setenv("SIM_TEST_KEPT", "before")
    with pytest.raises(ImportError, match="missing"):
        fails()
    assert os.environ["SIM_TEST_KEPT"] == "before"
    assert logging.root.manager.disable == logging.NOTSET
