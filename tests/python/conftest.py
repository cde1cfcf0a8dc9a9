import signal

import numpy as np
import pytest
import samples

import kinograph

# It has no doctests, and shares its name with the package's conftest.
collect_ignore = ["conftest.py"]
# These need packages that are too large to install for every run.
collect_ignore_glob = ["peers/record_*.py", "peers/train_*.py"]


@pytest.fixture(scope="session")
def lift_streams():
    return [
        samples.lift_like(60, seed=1),
        samples.lift_like(45, seed=2),
        samples.lift_like(73, seed=3),
    ]


@pytest.fixture(scope="session")
def lift_path(tmp_path_factory, lift_streams):
    """A dataset of three episodes that tests must not modify."""
    path = tmp_path_factory.mktemp("data") / "lift.kino"
    with kinograph.Writer(path, attributes={"env_args": {"env_name": "Lift"}}) as writer:
        for number, streams in enumerate(lift_streams):
            writer.add_episode(
                streams,
                rate_hz=20.0,
                id=f"demo_{number}",
                task="lift the cube",
                splits=["train", "small"] if number == 0 else ["valid"],
                success=[True, None, False][number],
                attributes={"num_samples": len(streams["actions"]), "model_file": "<mujoco/>"},
                labels={"operator": "ana", "attempt": number, "score": number / 2}
                if number
                else {},
            )
    return path


@pytest.fixture(autouse=True, scope="session")
def ctrl_c():
    """Let SIGINT interrupt, even if the tests were started in the background by a shell that ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def lift(lift_path):
    return kinograph.open(lift_path)


@pytest.fixture(scope="session")
def camera_path(tmp_path_factory):
    """A dataset of a few megabytes, in several shards."""
    path = tmp_path_factory.mktemp("remote") / "camera.kino"
    random = np.random.default_rng(5)
    with kinograph.Writer(path, shard_size="1MB") as writer:
        for number in range(6):
            images = random.integers(0, 255, (40, 48, 64, 3), dtype=np.uint8)
            streams = {"camera": images, "actions": random.normal(size=(40, 7)).astype(np.float32)}
            writer.add_episode(streams, rate_hz=20.0, id=f"e{number}")
    return path


@pytest.fixture
def work_folder(tmp_path, monkeypatch):
    """Keep the unfinished work of remote datasets of this test alone."""
    monkeypatch.setenv("KINOGRAPH_WORK", str(tmp_path / "work"))
    monkeypatch.delenv("KINOGRAPH_CACHE", raising=False)
