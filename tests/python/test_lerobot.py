"""The drop-in for LeRobot's dataset, compared item by item with LeRobot's own output (see peers/README.md).

Items are tensors, so a few tests need torch; the others read the same items as numpy arrays.
"""

import pickle

import numpy as np
import pytest
from optional import optional
from peers.digest import digest
from test_windows_peers import LEROBOT, lerobot_arrays  # noqa: F401 (a fixture)

import kinograph
from kinograph.lerobot import LeRobotDataset

CAMERA = "observation.images.top"
FPS = LEROBOT["fps"]
LENGTHS = LEROBOT["lengths"]
PLACES = [(number, frame) for number, length in enumerate(LENGTHS) for frame in range(length)]


@pytest.fixture(scope="module")
def root(tmp_path_factory, lerobot_arrays):  # noqa: F811 (a fixture)
    path = tmp_path_factory.mktemp("lerobot") / "d.kino"
    with kinograph.Writer(path, attributes={"robot_type": "so101"}) as writer:
        for number, streams in enumerate(lerobot_arrays):
            task = "touch the cube" if number != 1 else "wait"
            writer.add_episode(streams, rate_hz=float(FPS), task=task)
    return path


def to_bytes(images):
    """Convert float CHW images back to uint8 HWC."""
    values = np.round(images * 255).astype(np.uint8)
    assert (values.astype(np.float32) / np.float32(255) == images).all()
    return np.moveaxis(values, -3, -1)


def check(dataset, setting, to_numpy, read):
    assert len(dataset) == dataset.num_frames == setting["len"]
    for index, (number, frame) in enumerate(PLACES):
        item = {key: to_numpy(value) for key, value in read(index).items()}
        assert (item["index"], item["episode_index"], item["frame_index"]) == (index, number, frame)
        assert item["timestamp"] == np.float32(frame / FPS)
        assert item["task"] == ("touch the cube" if number != 1 else "wait")
        assert item["task_index"] == (number == 1)
        item[CAMERA] = to_bytes(item[CAMERA])
        keys = [*LEROBOT["keys"], *(f"{key}_is_pad" for key in setting["delta_timestamps"] or {})]
        assert digest({key: item[key] for key in keys}) == setting["items"][index]
        columns = ["timestamp", "frame_index", "episode_index", "index", "task_index", "task"]
        assert set(item) == {*keys, *columns}


@pytest.mark.parametrize("setting", LEROBOT["settings"], ids=lambda setting: setting["name"])
def test_items_equal_those_of_lerobot(root, setting):
    dataset = LeRobotDataset(
        "kinograph/peers", root=root, delta_timestamps=setting["delta_timestamps"]
    )
    check(dataset, setting, lambda value: value, dataset.read)


@pytest.mark.parametrize("setting", LEROBOT["settings"], ids=lambda setting: setting["name"])
def test_items_are_tensors(root, setting):
    torch = optional("torch")
    dataset = LeRobotDataset(str(root), delta_timestamps=setting["delta_timestamps"])

    def to_numpy(value):
        assert isinstance(value, torch.Tensor | str)
        return value if isinstance(value, str) else value.numpy()

    check(dataset, setting, to_numpy, dataset.__getitem__)


def test_dtypes_and_shapes_equal_those_of_lerobot(tmp_path):
    streams = {}
    for name in LEROBOT["types"]:
        dtype, shape = name.split(" ", 1)
        streams[name] = np.ones((2, int(shape[1])), dtype)
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(streams, rate_hz=30.0)
    item = LeRobotDataset(tmp_path / "d.kino").read(0)
    found = {name: f"{item[name].dtype} {item[name].shape}" for name in streams}
    assert found == LEROBOT["types"]


def test_selected_episodes_keep_their_indices(root):
    dataset = LeRobotDataset(root, episodes=[2, 0], delta_timestamps={"action": [0.0, 1 / FPS]})
    assert (dataset.num_episodes, dataset.num_frames) == (2, LENGTHS[0] + LENGTHS[2])
    assert dataset.episodes == [0, 2]
    found = [dataset.read(index) for index in range(len(dataset))]
    assert [int(item["index"]) for item in found] == [*range(9), *range(10, 33)]
    whole = LeRobotDataset(root, delta_timestamps={"action": [0.0, 1 / FPS]})
    for item in found[::5]:
        wanted = whole.read(int(item["index"]))
        assert digest(item) == digest(wanted)
    short = LeRobotDataset(root, episode_filter=lambda row: row["length"] < 5)
    assert (short.episodes, len(short)) == ([1], 1)
    with pytest.raises(kinograph.NotFoundError, match="no episode 3"):
        LeRobotDataset(root, episodes=[3])
    with pytest.raises(kinograph.InvalidArgumentError, match="no episode is chosen"):
        LeRobotDataset(root, episode_filter=lambda row: False)


def test_metadata_matches_the_data(root, lerobot_arrays):  # noqa: F811 (a fixture)
    meta = LeRobotDataset(root).meta
    assert (meta.fps, meta.total_episodes, meta.total_frames, meta.total_tasks) == (30, 3, 33, 2)
    assert meta.robot_type == "so101"
    assert meta.camera_keys == meta.image_keys == [CAMERA]
    assert meta.video_keys == []
    assert meta.features["action"] == {"dtype": "float32", "shape": (4,), "names": None}
    assert meta.features[CAMERA]["dtype"] == "image"
    assert meta.shapes["next.done"] == meta.shapes["timestamp"] == (1,)
    assert meta.names[CAMERA] == ["height", "width", "channels"]
    assert meta.episodes["dataset_from_index"].tolist() == [0, 9, 10]
    assert meta.episodes[-1] == {
        "episode_index": 2,
        "tasks": ["touch the cube"],
        "length": 23,
        "dataset_from_index": 10,
        "dataset_to_index": 33,
    }
    assert [row["length"] for row in meta.episodes[1:]] == [1, 23]
    assert meta.get_task_index("wait") == 1
    assert meta.get_task_index("jump") is None
    actions = np.concatenate([streams["action"] for streams in lerobot_arrays])
    np.testing.assert_allclose(meta.stats["action"]["mean"], actions.mean(0), atol=1e-6)
    images = np.concatenate([streams[CAMERA] for streams in lerobot_arrays]) / 255
    np.testing.assert_allclose(meta.stats[CAMERA]["std"][:, 0, 0], images.std((0, 1, 2)), atol=1e-4)
    assert meta.stats[CAMERA]["max"].shape == (3, 1, 1)
    assert meta.stats["action"]["count"].tolist() == [33]


def test_tasks_are_a_data_frame(root):
    pytest.importorskip("pandas", reason="pandas is not installed; the table of tasks needs it")
    tasks = LeRobotDataset(root).meta.tasks
    assert tasks.iloc[1].name == "wait"
    assert int(tasks.loc["wait"].task_index) == 1


def test_uint8_images_and_image_transforms(root):
    torch = optional("torch")
    plain = LeRobotDataset(root, delta_timestamps={CAMERA: [-1 / FPS, 0.0]})[12][CAMERA]
    raw = LeRobotDataset(root, delta_timestamps={CAMERA: [-1 / FPS, 0.0]}, return_uint8=True)
    assert (raw[12][CAMERA].dtype, raw[12][CAMERA].shape) == (torch.uint8, (2, 3, 32, 32))
    assert torch.equal(raw[12][CAMERA].float() / 255, plain)
    turned = LeRobotDataset(root, image_transforms=lambda image: image.flip(-1))
    assert torch.equal(turned[12][CAMERA], plain[1].flip(-1))
    loader = torch.utils.data.DataLoader(turned, batch_size=8, num_workers=2)
    assert next(iter(loader))[CAMERA].shape == (8, 3, 32, 32)


def test_depth_is_float32_with_a_channel_axis(tmp_path):
    depth = np.arange(2 * 8 * 8, dtype=np.uint16).reshape(2, 8, 8)
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode({"depth": depth, "action": np.zeros((2, 1))}, rate_hz=10.0)
    item = LeRobotDataset(tmp_path / "d.kino", delta_timestamps={"depth": [0.0, 0.1]}).read(0)
    np.testing.assert_array_equal(item["depth"], depth[:, None].astype(np.float32))


def test_offsets_between_frames_are_refused(root):
    with pytest.raises(ValueError, match="action"):
        LeRobotDataset(root, delta_timestamps={"action": [0.01]})
    assert LeRobotDataset(root, delta_timestamps={"action": [0.01]}, tolerance_s=0.02)
    with pytest.raises(kinograph.InvalidArgumentError, match="did you mean `action`"):
        LeRobotDataset(root, delta_timestamps={"acton": [0.0]})
    deltas = LeRobotDataset(root, delta_timestamps={"action": [0.1, -0.1]}).delta_indices
    assert deltas == {"action": [3, -3]}


def test_a_dataset_can_be_pickled(root):
    dataset = pickle.loads(pickle.dumps(LeRobotDataset(root, episodes=[2])))
    assert digest(dataset.read(3)) == digest(LeRobotDataset(root).read(13))
    assert "23 frames at 30 Hz" in repr(dataset)
    with pytest.raises(IndexError):
        dataset.read(23)
