"""Profiling any iterable in a training loop: the measurements equal those of a stopwatch."""

import json
import time
import weakref
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from optional import optional

import kinograph


class Time:
    """A clock that advances only through `work`, so that measurements are exact."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def work(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    fake = Time()
    monkeypatch.setattr(time, "perf_counter", fake)
    return fake


def stopwatch(clock, batches, step, *, epochs=1):
    """Time every batch by hand; return the total wait and all batches."""
    waited, seen = 0.0, []
    for _ in range(epochs):
        begun = clock()
        batches_of_epoch = iter(batches)
        while True:
            batch = next(batches_of_epoch, None)
            if batch is None:
                break
            waited += clock() - begun
            seen.append(batch)
            step(batch)
            begun = clock()
    return waited, seen


def slow(clock, waits):
    for number, wait in enumerate(waits):
        clock.work(wait)
        yield number


def test_the_wait_equals_that_of_a_stopwatch(clock):
    waits = [3.0, 0.25, 0.5, 0.0]
    profile = kinograph.Profile(slow(clock, waits))
    waited, seen = stopwatch(clock, profile, lambda _: clock.work(2.0))
    assert seen == [0, 1, 2, 3]
    assert profile.wait_s == waited == 3.75
    report = profile.report()
    assert (report.steps, report.elapsed_s) == (4, 11.75)
    assert profile.compute_ratio == pytest.approx(8 / 11.75)
    assert profile.utilisation == pytest.approx(6 / 6.75)


def test_the_wait_for_a_data_loader_equals_that_of_a_stopwatch(clock):
    data = optional("torch").utils.data

    class Samples(data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            clock.work(0.25 if index % 7 else 2.0)
            return np.float32(index)

    loader = data.DataLoader(Samples(), batch_size=8, shuffle=True)
    profile = kinograph.Profile(loader)
    assert len(profile) == len(loader)
    assert profile.dataset is loader.dataset
    waited, seen = stopwatch(clock, profile, lambda _: clock.work(1.0), epochs=2)
    assert sorted(float(value) for batch in seen for value in batch) == sorted(
        2 * [float(idx) for idx in range(40)]
    )
    assert profile.wait_s == waited == 2 * (34 * 0.25 + 6 * 2.0)
    assert profile.report().steps == 10


def test_profile_runs_the_step_on_each_batch_and_restarts_the_iterable(clock):
    seen = []

    def step(batch):
        clock.work(3.0)
        seen.append(batch)

    profile = kinograph.profile([1, 2, 3], step, steps=7)
    assert seen == [1, 2, 3, 1, 2, 3, 1]
    report = profile.report()
    assert (report.steps, report.is_marked, report.compute_s) == (7, True, 21.0)
    assert report.utilisation == 1.0
    assert kinograph.profile(iter([1, 2]), step).report().steps == 2


def test_an_impossible_number_of_steps_is_refused():
    with pytest.raises(kinograph.InvalidArgumentError, match="iterated again"):
        kinograph.profile(iter([1, 2]), print, steps=3)
    with pytest.raises(kinograph.InvalidArgumentError, match="steps"):
        kinograph.profile([1], print, steps=0)


def test_the_verdict_says_how_much_there_is_to_gain(clock):
    def verdict(wait):
        return kinograph.profile(slow(clock, [1.0] + [wait] * 9), lambda _: clock.work(1.0)).verdict

    assert "50.0% of its time: much to gain" in verdict(1.0)
    assert "2.00 times as fast" in verdict(1.0)
    assert "would gain nothing" in verdict(0.0)
    assert "Too few steps" in kinograph.Profile([]).verdict


def test_a_profile_is_shown_as_a_table_as_html_and_as_json(clock, tmp_path):
    profile = kinograph.profile(slow(clock, [1.0, 0.5, 0.002]), lambda _: clock.work(1.0))
    assert "2 stalls, 0.50 s; first batch after 1.00 s" in str(profile)
    page = profile.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == page
    ET.fromstring(page.removeprefix("<!DOCTYPE html>"))
    assert "<script" not in page
    assert "http" not in page
    assert "Training loop over generator" in page
    assert ET.fromstring(profile._repr_html_()).get("class") == "kinograph"
    assert '"stalls": 2' in profile.to_json()


def test_a_loop_that_waits_raises_an_alarm_and_has_a_price(clock):
    def profile(wait):
        waits = slow(clock, [1.0] + [wait] * 9)
        return kinograph.profile(waits, lambda _: clock.work(3.0), gpu_price=2.50, gpus=8)

    # The first wait does not count: a quarter of every later step is waiting.
    late = profile(1.0)
    assert late.idle.compute_ratio == pytest.approx(0.75)
    assert late.idle.is_alarm
    cost = late.idle.cost
    assert (cost.idle_gpu_hours_per_day, cost.cost_per_day) == pytest.approx((48.0, 120.0))
    assert "ALARM: the compute ratio 0.750 is below 0.85" in str(late)
    assert "waiting costs 120.00 per day" in str(late)
    page = late.to_html()
    assert "ALARM" in page
    assert "waiting costs 120.00 per day" in page
    idle = json.loads(late.to_json())["idle"]
    assert idle["cost"]["cost_per_day"] == cost.cost_per_day
    on_time = profile(0.0)
    assert "ALARM" not in str(on_time) + on_time.to_html()
    assert on_time.idle.cost.cost_per_day == 0
    assert kinograph.profile([1, 2], lambda _: None).idle.cost is None
    with pytest.raises(kinograph.InvalidArgumentError, match="needs a price"):
        kinograph.Profile([1], gpus=2)


def test_a_loop_with_a_break_counts_the_steps_it_ran(clock):
    profile = kinograph.Profile(range(10))
    for batch in profile:
        clock.work(1.0)
        if batch == 3:
            break
    assert profile.report().steps == 4


def test_the_profile_keeps_no_reference_to_a_batch():
    class Batch:
        pass

    profile = kinograph.Profile(Batch() for _ in range(3))
    for batch in profile:
        held = weakref.ref(batch)
        del batch
        assert held() is None


def test_attributes_that_the_iterable_lacks_are_missing_in_the_profile():
    profile = kinograph.Profile(iter([1]))
    with pytest.raises(AttributeError):
        profile.nothing_of_the_kind  # noqa: B018 (to fail)
    with pytest.raises(TypeError):
        len(profile)
