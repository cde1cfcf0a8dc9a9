"""How tests request windows: the only place that knows the names of the API.

A reader is made from a dataset and a request. It has `len(reader)` and `reader[i]`, a dict of arrays including masks;
text is a `str` or a list of `str`. `Reference` has the same interface for the reference, so that a test runs against
both.
"""

import windows_reference

import kinograph


class Reference:
    """The reference as a reader: lists its samples first, reads each on access."""

    def __init__(self, episodes, request):
        self._request = request
        self._places = [
            (episode, anchor)
            for episode in episodes
            for anchor in windows_reference.eligible(episode, request)
        ]

    def __len__(self):
        return len(self._places)

    def __getitem__(self, index):
        episode, anchor = self._places[index]
        return windows_reference.read(episode, self._request, anchor)


def bind(dataset, request):
    """Bind a request in its JSON form to a dataset."""
    return kinograph.Samples(dataset, request, {})


def count(bound):
    """Count the samples that a call binds; a request without samples may be refused."""
    try:
        return len(bound())
    except kinograph.InvalidArgumentError:
        return 0


def bind_robomimic(  # noqa: PLR0913 (robomimic's own)
    dataset, *, dataset_keys, obs_keys, get_pad_mask, goal_mode, load_next_obs, **options
):
    """Bind robomimic's arguments."""
    return dataset.samples(
        keys=[*dataset_keys, *(f"obs/{key}" for key in obs_keys)],
        masks="pad_mask" if get_pad_mask else "off",
        goal=goal_mode == "last",
        next_obs=load_next_obs,
        **options,
    )


def bind_lerobot(dataset, **options):
    """Bind LeRobot's arguments."""
    return dataset.samples(**{**options, "delta_timestamps": options["delta_timestamps"] or {}})
