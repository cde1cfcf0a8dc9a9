"""The thread that sends batches ahead, with a fake core and a fake device."""

import gc
import threading
import time
import weakref

import pytest

import kinograph
from kinograph._ahead import Ahead


class Core:
    """Returns numbered batches until it is closed; fails at one of them if requested."""

    def __init__(self, fails_at=None, ends_at=None):
        self.taken = 0
        self._fails_at, self._ends_at = fails_at, ends_at
        self._closed = threading.Event()

    def next(self):
        if self.taken == self._fails_at:
            raise kinograph.CorruptDataError("page 3 is damaged")
        if self.taken == self._ends_at:
            self._closed.wait()
        if self._closed.is_set():
            return None
        self.taken += 1
        return self.taken - 1, {"x": ("int64", [1], self.taken - 1)}

    def close(self):
        self._closed.set()


def send(arrays):
    (number,) = (data for _, _, data in arrays.values())
    sender = threading.current_thread()
    return lambda: {"x": number, "sent by": sender, "taken by": threading.current_thread()}


def wait_until(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("the condition was never met")


def test_batches_are_sent_in_a_thread_and_taken_in_order():
    ahead = Ahead(Core(), send)
    taken = [ahead.take() for _ in range(50)]
    assert [number for number, _ in taken] == list(range(50))
    assert [batch["x"] for _, batch in taken] == list(range(50))
    assert {batch["taken by"] for _, batch in taken} == {threading.current_thread()}
    assert {batch["sent by"].name for _, batch in taken} == {"kino-copy"}
    ahead.close()


def test_at_most_two_batches_are_in_flight():
    core = Core()
    ahead = Ahead(core, send)
    wait_until(lambda: core.taken == 2)
    time.sleep(0.05)
    assert core.taken == 2
    ahead.take()
    wait_until(lambda: core.taken == 3)
    ahead.close()


def test_an_error_is_raised_after_the_batches_before_it():
    ahead = Ahead(Core(fails_at=3), send)
    assert [ahead.take()[0] for _ in range(3)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(kinograph.CorruptDataError, match="page 3"):
            ahead.take()
    ahead.close()


def test_closing_stops_the_thread_at_any_point():
    for core, taken in ((Core(), 2), (Core(ends_at=1), 1)):
        ahead = Ahead(core, send)
        wait_until(lambda core=core, taken=taken: core.taken == taken)
        ahead.close()
        ahead.close()
        assert not ahead._thread.is_alive()
        with pytest.raises(kinograph.InvalidArgumentError, match="closed"):
            ahead.take()


def test_the_wait_of_the_training_loop_is_measured():
    core = Core(ends_at=0)
    ahead = Ahead(core, send)
    threading.Timer(0.1, core.close).start()
    with pytest.raises(kinograph.InvalidArgumentError, match="closed"):
        ahead.take()
    ahead.close()
    slow = Ahead(Core(), lambda arrays: (time.sleep(0.05), send(arrays))[1])
    slow.take()
    assert slow.waited_s >= 0.04
    slow.close()


def test_a_batch_that_was_taken_is_not_kept():
    class Memory:
        pass

    kept = []

    def lend(arrays):
        memory = Memory()
        kept.append(weakref.ref(memory))
        return lambda: {"x": memory}

    ahead = Ahead(Core(ends_at=2), lend)
    wait_until(lambda: len(kept) == 2)
    _, batch = ahead.take()
    del batch
    gc.collect()
    assert kept[0]() is None
    ahead.close()
    gc.collect()
    assert kept[1]() is None
