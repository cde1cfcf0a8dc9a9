"""Compressed robot demonstrations, read back as numpy arrays and training samples.

Reading:

    >>> ds = kinograph.open("lift.kino")
    >>> ds  # doctest: +ELLIPSIS
    Dataset('lift.kino', version 1: 2 episodes, 90 frames at 20 Hz, 4 streams, 216 kB raw → ...)
    >>> ds[0]["obs/agentview_image"][10:20].shape
    (10, 32, 24, 3)
    >>> ds["demo_1"]["actions"][0.0:1.5].shape
    (30, 7)

Writing:

    >>> with kinograph.Writer("mine.kino") as writer:
    ...     writer.add_episode({"actions": np.zeros((50, 7))}, rate_hz=20.0)
    >>> len(kinograph.open("mine.kino"))
    1

Training samples, and their order:

    >>> samples = ds.samples({"obs/agentview_image": [-0.05, 0.0], "actions": range(8)})
    >>> samples[0]["actions"].shape
    (8, 7)
    >>> order = ds.order(samples, batch_size=32, seed=7)
    >>> order[0:32]["sample"].shape
    (32,)

Errors in data and arguments are ``KinographError``s; an argument of the wrong Python type may also raise ``TypeError``.
"""

from kinograph import _core, _ffmpeg
from kinograph._augment import ColorJitter, RandomResizedCrop
from kinograph._dataset import Dataset, open  # noqa: A004 (`kinograph.open` is meant to be written out)
from kinograph._deployment import check_deployment
from kinograph._doctor import doctor
from kinograph._episode import Episode
from kinograph._errors import (
    ConflictError,
    CorruptDataError,
    InvalidArgumentError,
    KinographError,
    KinographWarning,
    NotFoundError,
    StorageError,
    TransformError,
    UnsupportedError,
)
from kinograph._export import export
from kinograph._foreign import ForeignCodec, register_codec
from kinograph._gc import gc
from kinograph._lengths import LengthOrder
from kinograph._link import link
from kinograph._loader_options import Images, RandomJpeg
from kinograph._order import Order, Source
from kinograph._pack import pack
from kinograph._pack_parts import commit_parts, pack_part
from kinograph._parity import Parity
from kinograph._plan import PlanChoice, plan
from kinograph._probe import Probed, probe
from kinograph._probe_policy import PolicyProbed, probe_policy
from kinograph._profile import Profile, profile
from kinograph._repack import repack
from kinograph._samples import Samples, Window
from kinograph._shuffle import Shuffle
from kinograph._stream import Stream
from kinograph._verify import verify
from kinograph._writer import Writer

__version__ = _core.VERSION

_ffmpeg.register()

__all__ = [
    "ColorJitter",
    "ConflictError",
    "CorruptDataError",
    "Dataset",
    "Episode",
    "ForeignCodec",
    "Images",
    "InvalidArgumentError",
    "KinographError",
    "KinographWarning",
    "LengthOrder",
    "NotFoundError",
    "Order",
    "Parity",
    "PlanChoice",
    "PolicyProbed",
    "Probed",
    "Profile",
    "RandomJpeg",
    "RandomResizedCrop",
    "Samples",
    "Shuffle",
    "Source",
    "StorageError",
    "Stream",
    "TransformError",
    "UnsupportedError",
    "Window",
    "Writer",
    "__version__",
    "check_deployment",
    "commit_parts",
    "doctor",
    "export",
    "gc",
    "link",
    "open",
    "pack",
    "pack_part",
    "plan",
    "probe",
    "probe_policy",
    "profile",
    "register_codec",
    "repack",
    "verify",
]
