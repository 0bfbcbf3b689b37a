"""The sub-commands of robot-rl data, from words to files and exit codes."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.records import Step, equal
from data.store import EpisodeStore
from robot_rl.cli import main
from robot_rl.cli.data import MODULES, SUMMARIES
from tests.data.episodes import die, episode
from tests.data.stores import robots_store, stored
from tests.data.validate import robot


@pytest.fixture
def store(tmp_path):
    given = [robot.episode(f"a-{seed}", steps=30, seed=seed) for seed in range(3)]
    return robots_store(tmp_path / "run/episodes", given)


@pytest.mark.parametrize("action", MODULES)
def test_every_option_is_explained(action, capsys):
    assert main(["data", action, "--help"]) == 0
    assert f"usage: robot-rl data {action}" in capsys.readouterr().out


def test_help_says_what_every_sub_command_does(capsys):
    assert main(["data", "--help"]) == 0
    said = capsys.readouterr().out
    assert MODULES.keys() == SUMMARIES.keys()
    assert all(f"    {name.ljust(8)}  {does}\n" in said for name, does in SUMMARIES.items())
    assert main(["data"]) == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["vlidate", "x"], "unknown sub-command 'vlidate': did you mean validate"),
        (["validate", "x", "--ignor", "gap"], "unknown option '--ignor': did you mean --ignore"),
        (["validate", "x", "--ignore", "gaps"], "unknown kind of finding 'gaps': did you mean gap?"),
        (["convert", "x", "y", "--to", "lerobt"], "unknown format to write 'lerobt': did you mean lerobot?"),
        (["label", "x", "--rule", "hg-dager"], "unknown rule 'hg-dager': did you mean hg-dagger"),
        (["prune", "x", "--keep", "1", "--outcomes", "won"], "unknown outcome 'won'"),
        (["recover", "x", "--discard"], "--discard needs --id, or --all"),
        (["split", "x", "--out", "y"], "needs one of --parts, --by and --ids"),
    ],
)
def test_a_misspelt_word_gets_a_hint_and_exit_code_2(words, hint, capsys):
    assert main(["data", *words]) == 2
    message = capsys.readouterr().err
    assert hint in message
    assert message.count("\n") == 1


def test_validate_says_what_and_where_and_ends_with_1_only_when_something_is_wrong(store, tmp_path, capsys):
    out = tmp_path / "found.json"
    words = ["data", "validate", str(tmp_path / "run"), "--json", str(out)]
    assert main(words) == 0
    assert "3 episodes, 90 steps: 0 errors, 0 warnings, 0 notes" in capsys.readouterr().out
    assert json.loads(out.read_text())["fine"] is True
    store.write(robot.episode("b-0", steps=30, outcome="unknown"))
    next((store.path / "a-1/steps").rglob("c.0*")).unlink()
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "error damaged a-1\n    Episode a-1 is damaged" in said
    assert "warning missing_outcome b-0" in said
    assert {f["episode"] for f in json.loads(out.read_text())["findings"]} == {"a-1", "b-0"}
    store.remove("a-1")
    assert main([*words, "--ignore", "missing_outcome"]) == 0
    assert "1 of kind missing_outcome ignored" in capsys.readouterr().out


def test_thresholds_can_be_set_and_misspelt_ones_get_a_hint(store, capsys):
    path = str(store.path)
    assert main(["data", "validate", path, "--thresholds", "saturated", "0.001"]) == 0
    assert main(["data", "validate", path, "--thresholds", "saturted", "0.5"]) == 1
    assert "did you mean 'saturated'" in capsys.readouterr().err


def test_info_counts_and_writes_json(store, tmp_path, capsys):
    out = tmp_path / "info.json"
    assert main(["data", "info", str(store.path), "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert "3 episodes, 90 steps" in said
    assert "outcomes: success 3" in said
    assert "observation.force at 500 Hz" in said
    assert "action arm: 3 position, delta, x y z" in said
    found = json.loads(out.read_text())
    assert (found["episodes"], found["steps"], found["outcomes"]) == (3, 90, {"success": 3})
    assert found["streams"]["observation.force"]["rate_hz"] == pytest.approx(500, rel=0.01)


def test_convert_and_prune_work_together(store, tmp_path, capsys):
    copy = tmp_path / "copy"
    prune = ["data", "prune", str(store.path), "--keep", "1"]
    assert main([*prune, "--apply"]) == 0
    assert "0 removed of 3 episodes" in capsys.readouterr().out
    assert main(["data", "convert", str(store.path), str(copy), "--to", "zarr"]) == 0
    assert "3 episodes in" in capsys.readouterr().out
    assert all(equal(EpisodeStore(copy).read(id_), store.read(id_)) for id_ in store.ids())
    assert main(prune) == 0
    assert "2 would go of 3" in capsys.readouterr().out
    assert len(store) == 3
    out = tmp_path / "pruned.json"
    assert main([*prune, "--apply", "--json", str(out)]) == 0
    assert len(store) == 1
    assert len(json.loads(out.read_text())["removed"]) == 2
    assert main(["data", "convert", str(store.path), str(copy), "--to", "zarr"]) == 1
    assert "exists already" in capsys.readouterr().err


def test_split_and_merge_give_back_what_there_was(store, tmp_path, capsys):
    out = tmp_path / "parts"
    words = ["data", "split", str(store.path), "--out", str(out), "--parts", "train", "0.67", "val", "0.33"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "2 episodes in" in said
    assert "1 episode in" in said
    merged = tmp_path / "merged"
    assert main(["data", "merge", str(out / "train"), str(out / "val"), "--out", str(merged)]) == 0
    assert EpisodeStore(merged).ids() == store.ids()
    assert main(["data", "merge", str(merged), str(store.path), "--out", str(tmp_path / "more")]) == 1
    assert "is taken by an earlier data set" in capsys.readouterr().err
    by = ["data", "split", str(store.path), "--out", str(tmp_path / "by"), "--by", "outcome"]
    assert main(by) == 0
    assert len(EpisodeStore(tmp_path / "by/success")) == 3


def test_labels_are_counted_and_written(store, tmp_path, capsys):
    out = tmp_path / "labels"
    assert main(["data", "label", str(store.path), "--rule", "hg_dagger", "--out", str(out)]) == 0
    assert "region autonomous" in capsys.readouterr().out
    with np.load(out / "a-0.npz", allow_pickle=False) as labels:
        assert labels["bc_weight"].shape == (30,)
    assert json.loads((out / "labels.json").read_text())["episodes"] == ["a-0", "a-1", "a-2"]
    words = ["data", "label", str(store.path), "--rule", "recap", "--advantage", "nothing"]
    assert main(words) == 1
    assert "has no diagnostic 'nothing'" in capsys.readouterr().err


def test_a_page_is_written(store, tmp_path, capsys):
    page = tmp_path / "deep" / "page.html"
    assert main(["data", "html", str(store.path), str(page), "--no-plots"]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert f"{page} ({page.stat().st_size / 1e3:.0f} kB)\n" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_values_of_a_critic_come_from_a_file(store, tmp_path, capsys, suffix):
    words = ["data", "label", str(store.path), "--rule", "help"]
    assert main(words) == 1
    assert "HELP needs classes of shape (30,)" in (said := capsys.readouterr().err)
    assert "--values FILE" in said
    values = {id_: ["progress"] * 20 + ["idle"] * 10 for id_ in store.ids()}
    file = tmp_path / f"values.{suffix}"
    if suffix == "json":
        file.write_text(json.dumps({id_: {"classes": value} for id_, value in values.items()}))
    else:
        np.savez(file, **{f"{id_}/classes": np.array(value) for id_, value in values.items()})
    out = tmp_path / "labels"
    assert main([*words, "--values", str(file), "--out", str(out)]) == 0
    with np.load(out / "a-2.npz", allow_pickle=False) as labels:
        assert labels["bc_weight"].tolist() == [1] * 20 + [0] * 10


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "cannot be read"),
        ("{", "cannot be read"),
        ('{"a-0": {"class": []}}', "holds ['class']"),
        ('{"b": {"classes": []}}', "have no episode 'a-0', only b"),
        ('{"a-0": {"classes": ["idle"]}}', "classes has shape (1,)"),
    ],
)
def test_values_that_do_not_fit_are_refused(store, tmp_path, capsys, content, message):
    file = tmp_path / "values.json"
    file.write_text(content)
    assert main(["data", "label", str(store.path), "--rule", "help", "--values", str(file)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["label", "--rule", "sop"], ["split", "--parts", "a", "1"], ["html"], ["view"]]
)
def test_every_reader_takes_a_format_and_its_options(store, tmp_path, capsys, words):
    copy = tmp_path / "copy.hdf5"
    assert main(["data", "convert", str(store.path), str(copy), "--to", "robomimic"]) == 0
    action, *rest = words
    if action == "html":
        rest = [str(tmp_path / "page.html")]
    if action in ("split", "view"):
        rest += ["--out", str(tmp_path / "made")]
    command = [*(["view"] if action == "view" else ["data", action]), str(copy), *rest]
    assert main([*command, "--format", "robomimik"]) != 0
    assert "robomimik" in capsys.readouterr().err
    assert main([*command, "--format", "robomimic", "--read", "rate_hz", "20"]) == 0


def _late(episode, row, seconds):
    """The episode with its steps from a row on later by some seconds, by both clocks."""
    shift = np.where(np.arange(len(episode)) >= row, seconds, 0.0)
    return replace(
        episode, monotonic_time=episode.monotonic_time + shift, wall_time=episode.wall_time + shift
    )


def _slow(episode):
    times = episode.monotonic_time
    return replace(episode, monotonic_time=times[0] + 2 * (times - times[0]))


def _observed(episode, key, change):
    rows = episode.observations[key].copy()
    change(rows)
    return replace(episode, observations={**episode.observations, key: rows})


def _hold(rows):
    rows[40:80] = rows[40]


def _lose(rows):
    rows[7, 2] = np.nan


def _twice(episode):
    times = episode.monotonic_time.copy()
    times[51] = times[50]
    return replace(episode, monotonic_time=times)


def _ended(episode):
    return replace(episode, terminated=np.arange(len(episode)) == 60)


BARE = robot.episode("b-0", seed=9, streams=False)
DAMAGE = {
    "damaged": None,
    "gap": _late(BARE, 60, 1.0),
    "time_order": _late(BARE, 60, -1.0),
    "duplicate_time": _twice(BARE),
    "wrong_rate": _slow(BARE),
    "not_finite": _observed(BARE, "observation.state", _lose),
    "frozen": _observed(BARE, "observation.images.top", _hold),
    "saturated": replace(BARE, action=np.sign(BARE.action) * 0.02),
    "misaligned": robot.episode("b-0", seed=9, streams=False, lag=6),
    "missing_outcome": robot.episode("b-0", seed=9, streams=False, outcome="unknown"),
    "early_end": _ended(BARE),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_validate_finds_each_kind_of_damage_and_ends_with_1(tmp_path, capsys, kind):
    """Prints one row of a table per kind; pytest -s shows it."""
    made = robots_store(tmp_path / "s")
    for seed in range(3):
        made.write(robot.episode(f"a-{seed}", seed=seed, streams=False))
    made.write(DAMAGE[kind] or BARE)
    if DAMAGE[kind] is None:
        chunk = next((made.path / "b-0/steps").rglob("c.0*"))
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    out = tmp_path / "found.json"
    code = main(["data", "validate", str(made.path), "--json", str(out)])
    capsys.readouterr()
    found = [one for one in json.loads(out.read_text())["findings"] if one["kind"] == kind]
    print(f"{kind:16} exit {code}  {found[0]['severity']:8} {found[0]['message']}" if found else kind)  # noqa: T201 - a table for pytest -s
    assert code == 1
    assert {one["episode"] for one in found} == {"b-0"}


@pytest.fixture
def unfinished(store):
    """Two recordings whose process died, the second before anything was flushed."""
    for id_, steps in (("torn", 30), ("empty", 0)):
        die(record(store, id_, steps))
    return store


def record(store, id_, steps):
    """Feed steps to a recorder; every 20th is flushed."""
    made = robot.episode(id_, steps=max(steps, 2), seed=1)
    recorder = store.recorder(id=id_, task="t")
    recorder.start({key: rows[0] for key, rows in made.observations.items()})
    for t in range(steps):
        step = Step(action=made.action[t], wall_time=1e9 + t, monotonic_time=float(t))
        recorder.append(step, {key: rows[t + 1] for key, rows in made.observations.items()})
    return recorder


def test_recover_lists_what_was_not_finished_and_changes_nothing_unasked(unfinished, tmp_path, capsys):
    out = tmp_path / "left.json"
    assert main(["data", "recover", str(tmp_path / "run"), "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert "its process ended before it was finished" in said
    assert time.strftime("%Y-%m-%d") in said
    assert "nothing was changed" in said
    left = json.loads(out.read_text())
    assert [(one["id"], one["steps"], one["active"]) for one in left["partial"]] == [
        ("empty", 0, False),
        ("torn", 20, False),
    ]
    assert abs(left["partial"][1]["when"] - time.time()) < 60
    assert (left["done"], left["failed"]) == ({}, {})
    assert len(unfinished.partials()) == 2
    assert len(unfinished) == 3


def test_recover_makes_episodes_of_what_is_named_and_says_what_stays(unfinished, tmp_path, capsys):
    assert main(["data", "recover", str(tmp_path / "run"), "--id", "torn"]) == 0
    assert "torn: an episode of 20 steps" in capsys.readouterr().out
    assert len(unfinished.read("torn")) == 20
    assert main(["data", "recover", str(tmp_path / "run"), "--all"]) == 1
    assert "empty stays Recording empty holds no whole step; discard it." in capsys.readouterr().out
    assert main(["data", "recover", str(tmp_path / "run"), "--id", "empti"]) == 2
    assert "unknown recording 'empti': did you mean empty" in capsys.readouterr().err
    assert main(["data", "recover", str(tmp_path / "run"), "--id", "empty", "--discard"]) == 0
    assert "empty: removed" in capsys.readouterr().out
    assert main(["data", "recover", str(tmp_path / "run")]) == 0
    assert "every recording was finished" in capsys.readouterr().out
    assert main(["data", "recover", str(tmp_path / "run"), "--id", "torn"]) == 2
    assert "there is no recording 'torn': all were finished" in capsys.readouterr().err
    assert main(["data", "recover", str(tmp_path / "nowhere")]) == 1
    assert "There is no episode store" in capsys.readouterr().err


def test_recover_says_how_many_steps_have_damaged_pictures(store, tmp_path, capsys):
    die(record(store, "torn", 60))
    (pictures,) = (store.path / ".recording/torn").glob("pictures-*")
    content = bytearray(pictures.read_bytes())
    content[len(content) // 2] ^= 1
    pictures.write_bytes(content)
    assert main(["data", "recover", str(tmp_path / "run"), "--id", "torn"]) == 0
    assert "torn: an episode of 20 steps; pictures of 40 more are damaged" in capsys.readouterr().out


def test_a_recording_that_goes_on_is_left_alone(store, tmp_path, capsys):
    recorder = record(store, "now", 30)
    assert main(["data", "recover", str(tmp_path / "run"), "--all", "--discard"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "it is being recorded" in said
    assert "now stays Episode now cannot be written: another writer holds" in said
    recorder.finish()
    assert len(store.read("now")) == 30


INSIDE = {
    "convert": ["STORE", "TARGET", "--to", "zarr"],
    "label": ["STORE", "--rule", "hg-dagger", "--out", "TARGET"],
    "merge": ["STORE", "OTHER", "--out", "TARGET"],
    "split": ["STORE", "--by", "outcome", "--out", "TARGET"],
}


@pytest.mark.parametrize("action", INSIDE)
@pytest.mark.parametrize("below", ["new", "a/new"])
def test_nothing_is_written_into_a_store_where_it_would_count_as_an_episode(tmp_path, capsys, action, below):
    store = stored(tmp_path / "s", [episode("a"), episode("b", seed=1)])
    stored(tmp_path / "o", [episode("c", seed=2)])
    places = {"STORE": store.path, "OTHER": tmp_path / "o", "TARGET": store.path / below}
    words = [str(places.get(word, word)) for word in INSIDE[action]]
    assert main(["data", action, *words]) == 1
    assert "lies inside the episode store" in capsys.readouterr().err
    assert store.ids() == ["a", "b"]
    assert not store.damages()
    assert not (store.path / ".receipts").exists()


@pytest.mark.parametrize("action", ["convert", "merge", "split"])
def test_no_episodes_make_no_new_store(tmp_path, capsys, action):
    for name in "so":
        EpisodeStore(tmp_path / name).recorder(id="x", task="t").discard()
    places = {"STORE": tmp_path / "s", "OTHER": tmp_path / "o", "TARGET": tmp_path / "new"}
    assert main(["data", action, *(str(places.get(word, word)) for word in INSIDE[action])]) == 1
    assert "There are no episodes" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"s", "o"}


HOSTILE = '</script><script>alert(1)</script>"><img src=x onerror=alert(2)>\ud800\x00\u202e[bold]'


def test_names_that_are_made_to_do_harm_are_shown_and_nothing_else(tmp_path):
    made = replace(episode("a"), task=HOSTILE, operator=HOSTILE, robot=HOSTILE, metadata={HOSTILE: HOSTILE})
    store = stored(tmp_path / "s", [made])
    assert equal(store.read("a"), made)
    page = tmp_path / "page.html"
    for words in (
        ["info", str(store.path)],
        ["validate", str(store.path)],
        ["html", str(store.path), str(page)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "robot_rl.cli", "data", *words],
            capture_output=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 0, done.stderr
    content = page.read_bytes().decode()
    assert "<script>alert" not in content
    assert "<img src=x" not in content
    assert "alert(1)" in content
