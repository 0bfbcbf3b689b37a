"""What we write as a LeRobotDataset, judged by LeRobot itself: loading, editing, statistics, training."""

import importlib.util
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import DatasetError
from data.features import from_array
from data.formats.lerobot_write import SIDECAR
from data.formats.registry import load, open_source
from data.lerobot import LeRobotFolder
from data.records import Outcome, equal
from tests.data.episodes import episode, streaming_episode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # LeRobot alone takes ten seconds to import, and minutes on a busy machine
    pytest.mark.filterwarnings("ignore"),  # those of LeRobot, datasets and diffusers are not ours to mend
    pytest.mark.skipif(importlib.util.find_spec("lerobot") is None, reason="lerobot is not installed"),
]
CAMERA = "observation.images.wrist"
SPEC = {"groups": [{"name": "arm", "size": 3, "names": ["x", "y", "z"]}], "rate_hz": 20.0}
QUANTILES = ("q01", "q10", "q50", "q90", "q99")


def originals():
    return [
        streaming_episode("streams", steps=13),
        replace(episode("failed", steps=9, seed=1), outcome=Outcome.FAILURE),
        episode("two", steps=7, seed=2),
    ]


def features():
    found = {key: from_array(rows[0]) for key, rows in originals()[0].observations.items()}
    return found | {"observation.wrench": replace(found["observation.wrench"], unit="N", mode="absolute")}


@pytest.fixture(scope="module")
def lerobot(tmp_path_factory):
    import datasets
    from lerobot.datasets import lerobot_dataset

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield lerobot_dataset


@pytest.fixture(scope="module")
def written(lerobot, tmp_path_factory):
    root = tmp_path_factory.mktemp("lerobot") / "set"
    assert load("lerobot").write(iter(originals()), features(), SPEC, root) == ()
    return root


def opened(lerobot, root, **options):
    return lerobot.LeRobotDataset("local/robot_rl", root=root, video_backend="pyav", **options)


def test_it_comes_back_equal(written):
    source = open_source(written)
    assert (source.count, source.notes, source.action_spec) == (3, (), SPEC)
    assert source.features == features()
    for found, wanted in zip(source.episodes, originals(), strict=True):
        assert equal(found, wanted)
    assert [entry.name for entry in written.parent.iterdir()] == ["set"]
    assert not (written / "images").exists()


def test_without_the_sidecar_the_columns_tell_the_same(written):
    source = open_source(written, sidecar="ignore")
    assert source.features["observation.tactile.left"].shape == (4, 4, 3)
    for found, wanted in zip(source.episodes, originals(), strict=True):
        for name in ("source", "segment_id", "segment_kind", "terminated", "truncated", "reward"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
        for name in ("action", "action_base", "action_policy"):
            wished = getattr(wanted, name).astype(np.float32)
            np.testing.assert_array_equal(getattr(found, name), wished, err_msg=name)
        assert (found.outcome, found.task) == (wanted.outcome, wanted.task)
        for key, values in wanted.observations.items():
            np.testing.assert_array_equal(found.observations[key][:-1], values[:-1], err_msg=key)


def test_lerobot_loads_it_with_chunks_and_histories(lerobot, written):
    delta = {"action": [0.0, 0.05, 0.1], CAMERA: [-0.05, 0.0]}
    dataset = opened(lerobot, written, delta_timestamps=delta)
    assert (dataset.num_episodes, len(dataset), dataset.fps) == (3, 29, 20)
    wanted = originals()[1]  # rows 13 to 21
    item = dataset[13 + 7]
    np.testing.assert_array_equal(item["action"], wanted.action[[7, 8, 8]].astype(np.float32))
    assert item["action_is_pad"].tolist() == [False, False, True]
    pictures = (item[CAMERA].numpy() * 255).round().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(pictures, wanted.observations[CAMERA][[6, 7]])
    state = wanted.observations["observation.state"][7]
    np.testing.assert_array_equal(item["observation.state"], state)
    assert (bool(item["intervention"]), int(item["intervention_segment"])) == (True, 1)
    assert (bool(item["valid.action.policy"]), item["task"]) == (False, "insert the peg")
    last = dataset[13 + 8]
    assert (bool(last["next.done"]), bool(last["next.truncated"]), bool(last["next.success"])) == (
        True,
        False,
        False,
    )
    assert dataset.meta.features["action"]["names"] == ["arm.x", "arm.y", "arm.z"]


def test_statistics_are_those_that_lerobot_computes_again(lerobot, written, tmp_path):
    from lerobot.datasets import dataset_tools

    shutil.copytree(written, tmp_path / "set")
    before = opened(lerobot, written).meta.stats
    after = dataset_tools.recompute_stats(
        opened(lerobot, tmp_path / "set"), skip_image_video=False
    ).meta.stats
    assert before.keys() >= {"action", "action.policy", "next.reward", "intervention", CAMERA}
    for key in before:
        for name in ("mean", "std", "min", "max", "count", *QUANTILES):
            np.testing.assert_allclose(
                before[key][name], after[key][name], atol=1e-6, err_msg=f"{key} {name}"
            )
    actions = np.concatenate([each.action for each in originals()])
    np.testing.assert_allclose(before["action"]["mean"], actions.mean(0), atol=1e-6)
    np.testing.assert_allclose(before["action"]["std"], actions.std(0), atol=1e-6)
    assert before["action"]["count"] == [29]


def test_lerobots_edit_tool_deletes_splits_and_merges_it(lerobot, written, tmp_path):
    from lerobot.scripts import lerobot_edit_dataset as tool

    def run(operation, target):
        config = tool.EditDatasetConfig(
            operation, "local/robot_rl", str(written), f"local/{target.name}", str(target)
        )
        tool.edit_dataset(config)

    run(tool.DeleteEpisodesConfig(episode_indices=[1]), tmp_path / "deleted")
    found = list(open_source(tmp_path / "deleted").episodes)
    assert [len(each) for each in found] == [13, 7]
    wanted = [each.action.astype(np.float32) for each in (originals()[0], originals()[2])]
    assert all(np.array_equal(each.action, action) for each, action in zip(found, wanted, strict=True))

    run(tool.SplitConfig(splits={"first": [0], "rest": [1, 2]}), tmp_path / "parts")
    roots = sorted(path.parent.parent for path in tmp_path.glob("parts*/**/info.json"))
    assert [len(LeRobotFolder(root)) for root in roots] == [1, 2]
    merge = tool.MergeConfig(repo_ids=["local/a", "local/b"], roots=[str(root) for root in roots])
    tool.edit_dataset(
        tool.EditDatasetConfig(merge, new_repo_id="local/merged", new_root=str(tmp_path / "merged"))
    )
    source = open_source(tmp_path / "merged")
    for each, original in zip(source.episodes, originals(), strict=True):
        assert each.outcome is original.outcome
        np.testing.assert_array_equal(each.source, original.source)
        np.testing.assert_array_equal(each.observations[CAMERA][:-1], original.observations[CAMERA][:-1])


@pytest.mark.parametrize(
    "key",
    ["next.reward", "intervention", "next.success", "robot_rl.source", "action.base", "observation.state"],
)
def test_a_column_that_was_changed_in_place_is_not_passed_over(lerobot, written, tmp_path, key):
    shutil.copytree(written, tmp_path / "set")
    (file,) = (tmp_path / "set/data").rglob("*.parquet")
    table = pq.read_table(file)
    place, column = table.schema.get_field_index(key), table[key]
    values = np.array(column.to_pylist())
    values[4] = ~values[4] if values.dtype == bool else values[4] + 1
    pq.write_table(
        table.set_column(place, table.schema.field(key), pa.array(values.tolist(), column.type)), file
    )
    with pytest.raises(DatasetError, match=rf"does not belong .* episode 0 has another {key}"):
        list(open_source(tmp_path / "set").episodes)
    assert len(list(open_source(tmp_path / "set", sidecar="ignore").episodes)) == 3


def test_a_picture_that_was_exchanged_in_place_is_not_passed_over(lerobot, written, tmp_path):
    shutil.copytree(written, tmp_path / "set")
    (file,) = (tmp_path / "set/data").rglob("*.parquet")
    table = pq.read_table(file)
    order = [*range(4), 5, 4, *range(6, len(table))]
    place = table.schema.get_field_index(CAMERA)
    pq.write_table(table.set_column(place, table.schema.field(CAMERA), table[CAMERA].take(order)), file)
    with pytest.raises(DatasetError, match=rf"does not belong .* episode 0 has another {CAMERA}"):
        list(open_source(tmp_path / "set").episodes)
    assert len(list(open_source(tmp_path / "set", cameras=False).episodes)) == 3


def test_a_column_that_was_added_is_said_to_be_left_out(lerobot, written, tmp_path):
    from lerobot.datasets import dataset_tools

    frames = sum(map(len, originals()))
    value = (np.arange(frames, dtype=np.float32)[:, None], {"dtype": "float32", "shape": (1,), "names": None})
    dataset_tools.add_features(
        opened(lerobot, written), {"critic.value": value}, output_dir=tmp_path / "more", repo_id="local/more"
    )
    shutil.copy(written / SIDECAR, tmp_path / "more" / SIDECAR)
    source = open_source(tmp_path / "more")
    assert source.notes == (
        "Columns critic.value were added later and are not read; sidecar='ignore' reads them.",
    )
    assert all(map(equal, source.episodes, originals()))


def test_a_sidecar_of_another_dataset_is_never_mixed_in(lerobot, written, tmp_path):
    from lerobot.datasets import dataset_tools

    dataset_tools.delete_episodes(
        opened(lerobot, written), [0], output_dir=tmp_path / "cut", repo_id="local/cut"
    )
    shutil.copy(written / SIDECAR, tmp_path / "cut" / SIDECAR)
    with pytest.raises(DatasetError, match=r"does not belong .* it has episodes \[0, 1, 2\].*ignore"):
        open_source(tmp_path / "cut")
    target = tmp_path / "other"
    load("lerobot").write([episode("a", seed=3), episode("b", steps=9), episode("c")], {}, SPEC, target)
    shutil.copy(written / SIDECAR, target / SIDECAR)
    with pytest.raises(DatasetError, match=r"does not belong .* episode 0 has other steps, actions"):
        list(open_source(target).episodes)
    assert len(list(open_source(target, sidecar="ignore").episodes)) == 3


def test_videos_lose_a_little_and_say_so(lerobot, tmp_path):
    grid = np.add.outer(np.arange(64), np.arange(96)).astype(np.uint8)
    pictures = np.stack([np.stack([grid + 5 * t, grid // 2, 200 - grid], -1) for t in range(8)])
    wanted = episode("one", steps=7)
    wanted = replace(wanted, observations={**wanted.observations, CAMERA: pictures})
    options = {"images": "video", "codec": "h264", "crf": 10}
    (note,) = load("lerobot").write([wanted], {}, SPEC, tmp_path / "set", **options)
    assert note == f"Pictures of {CAMERA} were compressed with loss."
    source = open_source(tmp_path / "set")
    assert source.notes == (note,)
    (found,) = source.episodes
    off = np.abs(found.observations[CAMERA].astype(int) - pictures)
    assert 0 < off[:-1].mean() < 6
    assert off[-1].max() == 0
    same = {**found.observations, CAMERA: pictures}
    assert equal(replace(found, observations=same), wanted)
    assert len(opened(lerobot, tmp_path / "set")) == 7


def test_what_lerobot_cannot_hold_is_refused_or_kept_apart(lerobot, written, tmp_path):
    with pytest.raises(FileExistsError, match="set exists already"):
        load("lerobot").write(originals(), {}, SPEC, written)
    wide = replace(episode("wide"), observations={"observation.state": np.zeros((14, 6), np.float32)})
    with pytest.raises(DatasetError, match=r"Episode wide does not fit the first one: .*'observation.state'"):
        load("lerobot").write([episode("one"), wide], {}, SPEC, tmp_path / "set")
    two = {name: np.ones((13, 2)) for name in ("action", "action_base", "action_policy", "action_intended")}
    with pytest.raises(DatasetError, match=r"Episode two does not fit .*actions have 2 numbers, not 3"):
        load("lerobot").write([episode("one"), replace(episode("two"), **two)], {}, SPEC, tmp_path / "set")
    with pytest.raises(DatasetError, match=f"{CAMERA} has 6 x 8 pixels; encoders"):
        load("lerobot").write([episode("one")], {}, SPEC, tmp_path / "set", images="video")
    assert list(tmp_path.iterdir()) == []
    one = episode("one")
    odd = replace(
        one,
        observations={
            **one.observations,
            "observation.images.depth": np.full((14, 4, 4, 1), np.nan, np.float32),
        },
        source=np.where(np.arange(13) < 2, "paused", one.source),
        reward=np.where(np.arange(13) < 5, one.reward, np.nan),
        outcome=Outcome.UNKNOWN,
        monotonic_time=one.monotonic_time * 2,
    )
    notes = load("lerobot").write([odd], {}, SPEC, tmp_path / "set")
    said = " ".join(notes)
    for part in (
        "depth is in the sidecar only",
        "did not run at 20",
        "2 paused steps",
        "next.reward is 0 at 8 steps",
        "next.success is False throughout 1 episodes",
    ):
        assert part in said
    assert len(notes) == 5
    assert equal(next(open_source(tmp_path / "set").episodes), odd)
    bare = next(open_source(tmp_path / "set", sidecar="ignore").episodes)
    np.testing.assert_array_equal(bare.reward, odd.reward)


def test_lerobots_diffusion_policy_trains_on_it(lerobot, written):
    import torch
    from lerobot.configs.types import FeatureType
    from lerobot.datasets.factory import resolve_delta_timestamps
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
    from lerobot.policies.factory import make_pre_post_processors
    from lerobot.utils.feature_utils import dataset_to_policy_features

    torch.manual_seed(0)
    meta = opened(lerobot, written).meta
    known = dataset_to_policy_features(meta.features)
    outputs = {key: feature for key, feature in known.items() if feature.type is FeatureType.ACTION}
    config = DiffusionConfig(
        device="cpu",
        horizon=8,
        n_action_steps=4,
        down_dims=(64, 128, 256),
        pretrained_backbone_weights=None,  # nothing is downloaded
        use_group_norm=True,
        crop_shape=None,
        num_train_timesteps=10,
        input_features={key: feature for key, feature in known.items() if key not in outputs},
        output_features=outputs,
    )
    policy = DiffusionPolicy(config)
    process, _ = make_pre_post_processors(config, dataset_stats=meta.stats)
    dataset = opened(lerobot, written, delta_timestamps=resolve_delta_timestamps(config, meta))
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=True)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    losses = []
    while len(losses) < 20:
        for batch in loader:
            loss, _ = policy.forward(process(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
