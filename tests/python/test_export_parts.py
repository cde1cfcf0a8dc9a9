"""Parts of an export: the files of an export by one process, whatever part was first, and none before all are there."""

import json
import subprocess
import sys

import pytest
import samples

import kinograph

FORMATS = ["act", "lerobot-v2.1", "mcap"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("parts") / "lift.kino"
    with kinograph.Writer(path, attributes={"robot": "panda"}) as writer:
        for number in range(5):
            streams = samples.lift_like(20 + 3 * number, seed=number)
            writer.add_episode(
                streams, rate_hz=20.0, id=f"demo_{number}", task=f"task {number % 2}"
            )
    return path


def run(*arguments, status=(0, 3)):
    command = [sys.executable, "-m", "kinograph", *map(str, arguments), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode in status, ran.stderr
    return json.loads(ran.stdout) if ran.stdout else ran.stderr


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("to", FORMATS)
def test_parts_in_any_order_are_the_export_by_one_process(dataset, tmp_path, to):
    how = ["--to", to, "--on-defect", "keep"]
    kinograph.export(dataset, tmp_path / "whole", to=to, on_defect="keep")
    target = tmp_path / "many" / "out"
    (tmp_path / "many").mkdir()
    # More parts than episodes, one of them twice.
    parts = [f"{part}/6" for part in (6, 2, 1, 5, 2, 3)]
    written = [run("export", dataset, target, *how, "--part", part)["episodes"] for part in parts]
    assert written == [0, 1, 1, 1, 1, 1]
    assert not target.exists()
    assert run("commit", target, "--status")["missing"] == [4]
    assert "--part` 4/6" in run("commit", target, status=(1,))
    run("export", dataset, target, *how, "--part", "4/6")
    committed = run("commit", target)
    assert committed["episodes"] == 5
    assert committed["frames"] == sum(
        len(episode[name]) for episode in kinograph.open(dataset) for name in episode
    )
    assert files(target) == files(tmp_path / "whole")
    left = [path.name for path in target.parent.iterdir()]
    assert left == ["out"], "nothing else stays"


def test_what_an_export_cannot_hold_is_refused_by_every_part_and_told_at_the_end(dataset, tmp_path):
    how = ["export", dataset, tmp_path / "out", "--to", "act"]
    labelled = tmp_path / "labelled.kino"
    with kinograph.Writer(labelled) as writer:
        for number in range(2):
            labels = {} if number else {"operator": "ana"}
            writer.add_episode(
                samples.lift_like(20), rate_hz=20.0, id=f"demo_{number}", labels=labels
            )
    how[1] = labelled
    assert "label `operator`" in run(*how, "--part", "2/2", status=(1,))
    for part in ("2/2", "1/2"):
        run(*how, "--part", part, "--on-defect", "keep", status=(3,))
    done = run("commit", tmp_path / "out", status=(3,))
    assert any("operator" in defect["place"] for defect in done["defects"])


@pytest.mark.parametrize("to", ["robomimic", "lerobot-v3", "zarr", "webdataset", "rlds"])
def test_formats_with_files_of_many_episodes_have_no_parts(dataset, tmp_path, to):
    error = run("export", dataset, tmp_path / "out", "--to", to, "--part", "1/2", status=(1,))
    assert f"an export to {to} cannot be made in parts" in error
    assert "act, lerobot-v2.1, mcap" in error
    assert list(tmp_path.iterdir()) == []


def test_parts_of_another_export_are_refused(dataset, tmp_path):
    how = ["export", dataset, tmp_path / "out", "--to", "mcap", "--on-defect", "keep"]
    run(*how, "--part", "1/2")
    assert "number of parts differs" in run(*how, "--part", "1/3", status=(1,))
    assert "options differs" in run(*how, "--part", "2/2", "--episodes", "demo_1", status=(1,))
    assert "already exists" in run(
        "export", dataset, tmp_path, *how[3:], "--part", "2/2", status=(1,)
    )
    run(*how, "--part", "2/2")
    (tmp_path / "out").mkdir()
    assert "already exists" in run("commit", tmp_path / "out", status=(1,))
