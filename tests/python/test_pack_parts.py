"""Parts of a pack, by the command and from Python: one version, after any kills."""

import datetime
import json
import random
import subprocess
import sys
import time

import pytest
from ray_chaos import write_recording

import kinograph

CREATED = "2026-11-19T12:00:00Z"


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("parts") / "demos.hdf5"
    write_recording(path, episodes=12)
    return path


def command(*arguments):
    """The command with these arguments."""
    return [sys.executable, "-m", "kinograph", *map(str, arguments)]


def run(*arguments, status=0):
    """Run the command; return its JSON."""
    ran = subprocess.run(command(*arguments, "--json"), capture_output=True, text=True, check=False)
    assert ran.returncode == status, ran.stderr
    return json.loads(ran.stdout) if status == 0 else ran.stderr


def test_killed_parts_are_run_again_and_give_the_version_of_one_process(recording, tmp_path):
    options = ["--shard-size", "4KB", "--created", CREATED]
    whole = run("pack", recording, tmp_path / "whole.kino", *options)
    target, chance = tmp_path / "a.kino", random.Random(1)
    portions = run("pack", recording, target, *options, "--portions")["portions"]
    assert portions == 12
    parts = [f"{part}/3" for part in (3, 1, 2)]
    for _ in range(5):
        for part in parts:
            arguments = command("pack", recording, target, *options, "--part", part)
            process = subprocess.Popen(
                arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(chance.uniform(0.1, 0.6))
            process.kill()
            process.wait()
    for part in parts:
        run("pack", recording, target, *options, "--part", part)
    state = run("commit", target, "--status")
    assert (state["portions"], state["finished"], state["missing"]) == (12, 12, [])
    done = run("commit", target)
    assert done["id"] == whole["id"]
    assert done["already_committed"] is False
    assert run("commit", target)["already_committed"] is True
    assert kinograph.verify(target, decode=True) == []


def test_a_missing_part_is_named(recording, tmp_path):
    target = tmp_path / "a.kino"
    done = kinograph.pack_part(recording, target, part="1/2", shard_size="4KB")
    assert done[:4] == (12, 6, 0, 6)
    with pytest.raises(kinograph.NotFoundError, match=r"`--part` 2/12, 4/12, 6/12"):
        kinograph.commit_parts(target)
    assert run("commit", target, "--status")["missing"] == [2, 4, 6, 8, 10, 12]
    with pytest.raises(kinograph.InvalidArgumentError, match="3/2 does not exist"):
        kinograph.pack_part(recording, target, part="3/2")
    with pytest.raises(kinograph.ConflictError, match='seed was "0", now it is "1"'):
        kinograph.pack_part(recording, target, part="2/2", shard_size="4KB", seed=1)


def test_a_version_is_created_when_the_user_says(recording, tmp_path):
    noon = datetime.datetime(2026, 11, 19, 12, tzinfo=datetime.timezone.utc)
    ids = {
        kinograph.pack(recording, tmp_path / f"{idx}.kino", created=created).id
        for idx, created in enumerate([CREATED, noon])
    }
    assert len(ids) == 1
    manifest = json.loads((tmp_path / "0.kino/versions/00000001.json").read_text("utf-8"))
    assert manifest["created"] == CREATED
    for wrong in ["yesterday", datetime.datetime(2026, 11, 19)]:
        with pytest.raises(kinograph.InvalidArgumentError, match="time"):
            kinograph.pack(recording, tmp_path / "b.kino", created=wrong)


def test_parts_share_the_time_at_which_the_first_began(recording, tmp_path):
    for part in ("2/2", "1/2"):
        run("pack", recording, tmp_path / "a.kino", "--part", part)
        time.sleep(1.1)
    parts = kinograph.commit_parts(tmp_path / "a.kino")
    manifest = json.loads((tmp_path / "a.kino/versions/00000001.json").read_text("utf-8"))
    whole = kinograph.pack(recording, tmp_path / "b.kino", created=manifest["created"])
    assert parts.id == whole.id
