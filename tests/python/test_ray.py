"""A pack on a Ray cluster is the pack by one process, bit for bit, whatever happens to the workers."""

import os
import subprocess
import sys

import pytest
from optional import optional
from ray_chaos import Chaos, write_recording

import kinograph

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # or it writes a token into the home folder
ray = optional("ray")
kinograph_ray = pytest.importorskip("kinograph.ray")

CREATED = "2026-11-19T12:00:00Z"
OPTIONS = {"shard_size": "4KB", "created": CREATED, "seed": 3}


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("ray") / "demos.hdf5"
    write_recording(path, episodes=24)
    return path


@pytest.fixture(scope="module")
def whole(recording):
    """The version that one process makes."""
    return kinograph.pack(recording, recording.parent / "whole.kino", **OPTIONS)


@pytest.fixture(scope="module")
def cluster():
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_version_of_one_process(
    recording, whole, cluster, tmp_path, workers
):
    seen = []
    packed = kinograph_ray.pack(
        recording,
        tmp_path / "a.kino",
        cpus=4 // workers,
        progress=lambda done, total: seen.append((done, total)),
        **OPTIONS,
    )
    assert (packed.id, packed.episodes) == (whole.id, 24)
    assert kinograph.verify(tmp_path / "a.kino", decode=True) == []
    assert seen[-1][0] == seen[-1][1] > 0


def test_killed_workers_change_nothing(recording, whole, cluster, tmp_path):
    with Chaos(most=6, every_s=0.05) as chaos:
        packed = kinograph_ray.pack(recording, tmp_path / "a.kino", max_retries=50, **OPTIONS)
    assert packed.id == whole.id
    assert chaos.kills > 0
    assert kinograph.verify(tmp_path / "a.kino") == []


def test_errors_of_a_worker_are_those_of_a_pack_and_are_not_retried(recording, cluster, tmp_path):
    with pytest.raises(kinograph.InvalidArgumentError, match="not an option of a pack in parts"):
        kinograph_ray.pack(recording, tmp_path / "a.kino", colour="red")
    with pytest.raises(kinograph.NotFoundError, match=r"nothing\.hdf5"):
        kinograph_ray.pack(tmp_path / "nothing.hdf5", tmp_path / "a.kino")
    assert not (tmp_path / "a.kino").exists()


def command(*arguments):
    """Run the command with the cluster of these tests."""
    address = ray.get_runtime_context().gcs_address
    line = [sys.executable, "-m", "kinograph", *map(str, arguments), "--ray", address]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_the_command_packs_and_verifies_with_ray(recording, cluster, tmp_path):
    target = tmp_path / "a.kino"
    # Few parts: each is a process that starts Python.
    options = ["--shard-size", "40KB", "--created", CREATED]
    larger = OPTIONS | {"shard_size": "40KB"}
    whole = kinograph.pack(recording, tmp_path / "whole.kino", **larger)
    ran = command("pack", recording, target, *options, "--seed", "3")
    assert ran.returncode == 0, ran.stderr
    assert f"id {whole.id}" in ran.stdout
    assert "pack: 100%" in ran.stderr
    exported = command("export", target, tmp_path / "out", "--to", "mcap", "--on-defect", "keep")
    assert exported.returncode in (0, 3), exported.stderr
    assert "export: 100% (24 of 24 parts" in exported.stderr
    assert len(list((tmp_path / "out").glob("*.mcap"))) == 24
    wrong = command("pack", recording, target, *options, "--seed", "4")
    assert wrong.returncode == 1
    assert 'seed was "3", now it is "4"' in wrong.stderr
    shard = max((target / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])
    found = command("verify", target)
    assert found.returncode == 1
    assert shard.name in found.stdout
    assert "24 episodes" in found.stdout


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_repack_export_and_verify_are_those_of_one_process(recording, whole, cluster, tmp_path):
    source = recording.parent / "whole.kino"
    options = {"plan": {"stream": [{"kind": "image", "codec": "jpeg:q=80"}]}, "created": CREATED}
    one = kinograph.repack(source, tmp_path / "one.kino", shard_size="16KB", **options)
    seen = []
    repacked = kinograph_ray.repack(
        source,
        tmp_path / "many.kino",
        shard_size="16KB",
        progress=lambda *now: seen.append(now),
        **options,
    )
    assert (repacked.id, repacked.episodes) == (one.id, 24)
    assert seen[-1][0] == seen[-1][1] > 0
    kept = {"on_defect": "keep", "filter": "frames > 0"}
    kinograph.export(source, tmp_path / "one", to="act", **kept)
    with Chaos(most=2, every_s=0.05):
        exported = kinograph_ray.export(
            source, tmp_path / "many", to="act", progress=lambda *now: seen.append(now), **kept
        )
    assert exported.episodes == 24
    assert seen[-1] == (24, 24)
    assert files(tmp_path / "many") == files(tmp_path / "one")
    with pytest.raises(kinograph.InvalidArgumentError, match="act, lerobot-v2"):
        kinograph_ray.export(source, tmp_path / "a.hdf5", to="robomimic")
    with pytest.raises(kinograph.InvalidArgumentError, match="'colour' is not an option"):
        kinograph_ray.export(source, tmp_path / "b", to="act", colour="red")
    assert kinograph_ray.verify(source, decode=True) == []
    shard = max((tmp_path / "many.kino" / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])
    found = kinograph_ray.verify(tmp_path / "many.kino")
    assert set(found) == set(kinograph.verify(tmp_path / "many.kino"))
    assert any(shard.name in place.place for place in found)
