"""New files and folders beside others who write the same one."""

import pytest

from data.formats.target import new_target


def fill(part, kind, text):
    if kind == "folder":
        part.mkdir()
        part /= "inside"
    part.write_text(text)


def write(path, kind, text):
    with new_target(path) as part:
        fill(part, kind, text)


def content(path):
    return ((path / "inside") if path.is_dir() else path).read_text()


@pytest.mark.parametrize("first", ["file", "folder"])
@pytest.mark.parametrize("second", ["file", "folder"])
def test_of_two_who_write_one_target_the_first_keeps_it(tmp_path, monkeypatch, first, second):
    path = tmp_path / "out"
    look = type(path).exists

    def late(self, **options):
        found = look(self, **options)
        if self == path and not found:  # the other one comes right after this one has looked
            monkeypatch.undo()
            write(path, first, "first")
        return found

    def write_slowly():
        with new_target(path) as part:
            fill(part, second, "second")
            monkeypatch.setattr(type(path), "exists", late)

    with pytest.raises(FileExistsError, match="out exists already; choose another"):
        write_slowly()
    assert content(path) == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_a_file_system_without_links_holds_files_too(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", no_links)
    write(tmp_path / "out", "file", "all")
    assert content(tmp_path / "out") == "all"


def test_what_one_left_that_was_killed_right_after_the_end_goes_with_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("data.formats.target._remove", lambda _: None)
    monkeypatch.setattr("data.formats.target.os.getpid", lambda: 2**22 + 1)  # no process has such a number
    write(tmp_path / "out", "file", "all")
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(FileExistsError):
        write(tmp_path / "out", "file", "again")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
