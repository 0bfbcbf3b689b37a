import pytest

from data.features import Feature
from data.imports import ImportPathError, import_object, import_path


def test_a_path_leads_to_its_object_and_back() -> None:
    assert import_object("data.features:Feature") is Feature
    assert import_path(Feature) == "data.features:Feature"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no_such_module:Task", "No module named 'no_such_module'; install"),
        ("no_such_module.deep:Task", "PYTHONPATH=FOLDER"),
        ("data.features:Nope", "has no attribute 'Nope'"),
        ("data.features", "it is not of the form module:name"),
        ("data.features:", "it is not of the form module:name"),
        (":Feature", "it is not of the form module:name"),
        (".features:Feature", "it is not of the form module:name"),
    ],
)
def test_a_path_that_leads_nowhere_says_why(path: str, reason: str) -> None:
    with pytest.raises(ImportPathError, match="cannot be imported") as caught:
        import_object(path)
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert str(caught.value).startswith(repr(path))


def test_a_module_whose_own_import_fails_is_named_too(tmp_path, monkeypatch) -> None:
    (tmp_path / "needs_more.py").write_text("from data.features import Missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportPathError, match="cannot import name 'Missing'"):
        import_object("needs_more:Task")
    (tmp_path / "needs_package.py").write_text("import no_such_module\n")
    with pytest.raises(ImportPathError, match=r"No module named 'no_such_module'$"):
        import_object("needs_package:Task")
