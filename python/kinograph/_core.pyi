from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, final, type_check_only

import numpy as np
import numpy.typing as npt

__all__ = [
    "VERSION",
    "BatchMemory",
    "CudaJpeg",
    "CudaSender",
    "Dataset",
    "Episode",
    "FixedBatches",
    "LengthOrder",
    "Loader",
    "LoopTimes",
    "Order",
    "Parity",
    "Samples",
    "Stream",
    "Writer",
    "add_ffmpeg_folder",
    "commit_export",
    "commit_parts",
    "copy_mp4",
    "count_export_parts",
    "count_portions",
    "count_repack_portions",
    "doctor",
    "doctor_foreign",
    "doctor_html",
    "doctor_text",
    "end_codecs",
    "escape",
    "export",
    "export_parts_done",
    "gc",
    "idle",
    "jpeg_shape",
    "lerobot_request",
    "loader_options",
    "pack",
    "pack_part",
    "pack_sample",
    "parse_bytes",
    "plan",
    "plan_html",
    "plan_part",
    "plan_text",
    "plan_toml",
    "plan_verify",
    "plan_what_if",
    "portions_done",
    "probe",
    "probe_html",
    "probe_text",
    "register_codec",
    "repack",
    "repack_part",
    "report_html",
    "robomimic_request",
    "run_cli",
    "sample_episodes",
    "show_bytes",
    "to_url",
    "unmatched_rules",
    "verify",
]

VERSION: str

# Samples, weight, episode weights, and the (epoch, samples) of a curriculum.
_OrderSource: TypeAlias = tuple[Samples, float, list[float] | None, list[tuple[int, Samples]]]
# Source, variant, epoch and sample index.
_SampleColumns: TypeAlias = tuple[
    npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.uint64], npt.NDArray[np.uint64]
]

@final
class Dataset:
    def __new__(
        cls,
        path: str | PathLike[str],
        version: int | None = None,
        root: str | PathLike[str] | None = None,
        cache: str | PathLike[str] | None = None,
    ) -> Dataset: ...
    def __len__(self) -> int: ...
    def on_storage(self, storage: str) -> Dataset: ...
    @property
    def path(self) -> Path: ...
    @property
    def root(self) -> Path | None: ...
    def links(self) -> str | None: ...
    @property
    def id(self) -> str: ...
    @property
    def version(self) -> int: ...
    def versions(self) -> list[int]: ...
    def storage_report(self) -> str | None: ...
    def copy(
        self,
        target: str | PathLike[str],
        selection: str,
        progress: Callable[[int, int], object] | None,
    ) -> tuple[int, int, int, int]: ...
    def missing_decoders(self) -> list[str]: ...
    def attributes(self) -> str: ...
    def total_bytes(self) -> int: ...
    def streams(self) -> str: ...
    def stats(self) -> dict[str, dict[str, Any]]: ...
    def columns(self) -> list[str]: ...
    def column(
        self, name: str
    ) -> tuple[Literal["bool", "int", "float", "text", "texts"], list[Any]]: ...
    def episode(self, row: int) -> Episode: ...
    def find(self, name: str) -> Episode: ...

@final
class Episode:
    @property
    def id(self) -> str: ...
    @property
    def row(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    def streams(self) -> list[str]: ...
    def rates_hz(self) -> list[float | None]: ...
    def stream(self, name: str) -> Stream: ...
    def read_attributes(self) -> str: ...
    def read_protected(self) -> list[tuple[str, int, int]]: ...
    def read_events(self) -> str: ...

@final
class Stream:
    def __len__(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def codec(self) -> str: ...
    def rate_hz(self) -> float | None: ...
    def read_timestamps_ns(self) -> npt.NDArray[np.int64]: ...
    def frames_between(self, start_s: float, end_s: float) -> tuple[int, int]: ...
    def read_into(self, first: int, end: int, out: npt.NDArray[np.uint8]) -> None: ...
    def read_text(self, first: int, end: int) -> list[str]: ...
    def read_bitstream(self, frame: int) -> bytes | None: ...

@final
class Samples:
    def __new__(cls, dataset: Dataset, request: str, selection: str) -> Samples: ...
    def __len__(self) -> int: ...
    def request(self) -> str: ...
    def id(self) -> str: ...
    def episodes(self) -> npt.NDArray[np.int64]: ...
    def counts(self) -> npt.NDArray[np.int64]: ...
    def shapes(self) -> list[tuple[str, list[int | None]]]: ...
    def locate(self, index: int) -> tuple[int, int]: ...
    def frames(self, index: int) -> dict[str, npt.NDArray[np.int64]]: ...
    def read(self, index: int) -> dict[str, tuple[str, list[int], Any]]: ...

@final
class LoopTimes:
    def __new__(cls) -> LoopTimes: ...
    def took(self, asked: float, has: float) -> None: ...
    def end(self, now: float) -> None: ...
    def steps(self) -> int: ...
    def report(
        self,
    ) -> tuple[
        tuple[float, float, int],
        float,
        tuple[float, float],
        list[tuple[float, float, float]],
    ]: ...
    def waits(self) -> str: ...

@final
class Order:
    def __new__(cls, sources: list[_OrderSource], settings: str) -> Order: ...
    def id(self) -> str: ...
    def seed(self) -> int: ...
    def settings(self) -> str: ...
    def epoch_samples(self) -> int: ...
    def epoch_of(self, index: int) -> int: ...
    def batches_of(self, epoch: int) -> tuple[int, int]: ...
    def rank_range(
        self, batch: int, rank: int, world_size: int, uneven: bool
    ) -> tuple[int, int]: ...
    def samples(self, start: int, stop: int) -> _SampleColumns: ...
    def substitute(self, index: int, attempt: int) -> _SampleColumns: ...
    def draw(self, index: int, operation: str) -> int: ...
    def state(self, next_index: int) -> str: ...
    def restore(self, state: str, force: bool) -> tuple[Order, int]: ...
    def quality(self, samples: list[list[Samples]], options: str, local_ranks: int) -> str: ...

@final
class BatchMemory: ...

@final
class Loader:
    def __new__(
        cls,
        order: Order,
        windows: list[list[Samples]],
        options: str,
        lengths: LengthOrder | None = None,
    ) -> Loader: ...
    def next(self) -> tuple[int, int, dict[str, tuple[str, list[int], Any]]] | None: ...
    def report(self) -> str: ...
    def start_trace(self) -> int: ...
    def finish_trace(self) -> str: ...
    def close(self) -> None: ...

@final
class FixedBatches:
    def __new__(cls) -> FixedBatches: ...

@final
class CudaJpeg:
    def __new__(cls, ordinal: int, folders: list[str], engine: str | None = None) -> CudaJpeg: ...
    def describe(self) -> tuple[str, str]: ...
    def decode(self, files: list[bytes], size: tuple[int, int], stream: int) -> object: ...

@final
class CudaSender:
    def __new__(
        cls,
        loader: Loader,
        device: tuple[int, int, Callable[[], int], Callable[[Any], Any]],
        fixed: FixedBatches | None = None,
        jpeg: list[str] | None = None,
    ) -> CudaSender: ...
    def next(self) -> tuple[int, dict[str, Any], float] | None: ...
    def waited_s(self) -> float: ...
    def report(self) -> tuple[float, int, int, float, int]: ...
    def image_report(self) -> str | None: ...
    def unpinned(self) -> str | None: ...
    def close(self) -> None: ...

@final
class LengthOrder:
    def __new__(cls, windows: Samples, settings: str, measure: str) -> LengthOrder: ...
    def seed(self) -> int: ...
    def batches_in(self, epoch: int) -> int: ...
    def step(
        self, position: tuple[int, int], rank: int, world_size: int
    ) -> tuple[list[tuple[int, npt.NDArray[np.uint32]]], tuple[int, int]]: ...
    def state(self, position: tuple[int, int]) -> str: ...
    def restore(self, state: str, force: bool) -> tuple[LengthOrder, tuple[int, int]]: ...

@final
class Parity:
    def __new__(cls, dataset: Dataset, keys: list[tuple[str, str]], options: str) -> Parity: ...
    @staticmethod
    def from_json(text: str) -> Parity: ...
    def with_reference(self, dataset: Dataset, rows: list[int] | None) -> Parity: ...
    def check(self) -> None: ...
    def to_json(self) -> str: ...
    def keys(self) -> list[str]: ...
    def describe(self, key: str) -> tuple[str, str, list[str]]: ...
    def stored(self, key: str) -> tuple[str, list[int]]: ...
    def apply(
        self, key: str, shape: list[int], frames: npt.NDArray[np.uint8]
    ) -> tuple[str, list[int], npt.NDArray[np.uint8]]: ...
    def check_deployment(
        self, live: list[tuple[str, str, list[int], npt.NDArray[np.uint8]]]
    ) -> tuple[str, str, str]: ...

@final
@final
class Writer:
    def __new__(cls, path: str | PathLike[str], options: Options) -> Writer: ...
    def resumed(self) -> list[str]: ...
    def interrupted(self) -> int: ...
    def add_episode(self, episode: EpisodeArgs, streams: list[StreamArgs]) -> None: ...
    def commit(self, message: str) -> tuple[int, str, int]: ...
    def abandon(self) -> None: ...
    def disown(self) -> None: ...

# Name, what was done, codecs and bytes before and after, error of the codec, earlier lossy encodings, note.
_RepackedStream: TypeAlias = tuple[
    str,
    Literal["copied", "encoded", "dropped"],
    tuple[list[str], list[str]],
    tuple[int, int],
    tuple[float, float | None],
    list[tuple[str, float | None, float | None]],
    str | None,
]

_StagedWork: TypeAlias = tuple[
    str, Literal["at work", "can be resumed", "garbage"], int, int, dict[str, str]
]

def to_url(path: str) -> str | None: ...
def gc(
    path: str | PathLike[str], delete: bool, interrupted: bool
) -> tuple[int, list[str], list[_StagedWork]]: ...
def pack(
    source: str | PathLike[str],
    target: str | PathLike[str],
    options: PackArgs,
    progress: Callable[[int, int], object] | None,
) -> tuple[tuple[int, str, int], list[tuple[str, str, str | None, str, bool]]]: ...
def pack_part(
    source: str | PathLike[str],
    target: str | PathLike[str],
    options: PartArgs,
    progress: Callable[[int, int], object] | None,
) -> tuple[tuple[int, int, int, int], list[tuple[str, str, str | None, str, bool]]]: ...
def count_portions(source: str | PathLike[str], options: PackArgs) -> int: ...
def commit_parts(
    target: str | PathLike[str],
) -> tuple[tuple[tuple[int, str, int], list[tuple[str, str, str | None, str, bool]]], bool]: ...
def portions_done(
    target: str | PathLike[str],
) -> tuple[tuple[int, int], tuple[int, int], list[int]] | None: ...
def repack(
    dataset: str | PathLike[str],
    target: str | PathLike[str] | None,
    options: RepackArgs,
    progress: Callable[[int, int], object] | None,
) -> tuple[tuple[int, str, int], list[_RepackedStream]]: ...
def repack_part(
    dataset: str | PathLike[str],
    target: str | PathLike[str],
    options: RepackArgs,
    part: str,
) -> tuple[int, int, int, int]: ...
def count_repack_portions(dataset: str | PathLike[str], options: RepackArgs) -> int: ...
def count_export_parts(dataset: str | PathLike[str], options: ExportArgs) -> int: ...
def commit_export(
    target: str | PathLike[str],
) -> tuple[tuple[int, int], list[tuple[str, str, str | None, str, bool]]]: ...
def export_parts_done(target: str | PathLike[str]) -> tuple[int, int] | None: ...
def export(
    dataset: str | PathLike[str],
    target: str | PathLike[str],
    options: ExportArgs,
    progress: Callable[[int, int], object] | None,
) -> tuple[tuple[int, int], list[tuple[str, str, str | None, str, bool]]]: ...
def doctor(
    order: Order,
    windows: list[list[Samples]],
    options: str,
    how: DoctorArgs,
) -> str: ...
def doctor_foreign(evidence: str, gpu_price: float | None, gpus: int) -> str: ...
def doctor_html(found: str) -> str: ...
def doctor_text(found: str) -> str: ...
def sample_episodes(episodes: int, decoded_bytes: int, max_bytes: int) -> list[int]: ...
def pack_sample(
    source: str | PathLike[str], target: str | PathLike[str], how: SampleArgs
) -> str: ...
def plan(
    order: Order,
    windows: list[list[Samples]],
    options: str,
    how: PlanArgs,
    progress: Callable[[str], object] | None,
) -> str: ...
def plan_html(found: str, is_page: bool) -> str: ...
def plan_part(
    dataset: Dataset, part: SourceArgs, requested: list[str]
) -> tuple[list[int] | None, str]: ...
def plan_text(found: str) -> str: ...
def plan_toml(found: str, number: int) -> str: ...
def plan_verify(
    order: Order,
    windows: list[list[Samples]],
    options: str,
    how: VerifyArgs,
) -> str: ...
def plan_what_if(found: str, how: PlanArgs) -> str: ...

_Function: TypeAlias = Callable[[bytearray, str, list[int]], bytes]
_Candidate: TypeAlias = tuple[str, str | None, Dataset | None, dict[str, _Function]]

def probe(
    dataset: Dataset,
    candidates: list[_Candidate],
    how: ProbeArgs,
    progress: Callable[[str], object] | None,
) -> str: ...
def probe_html(found: str, is_page: bool) -> str: ...
def probe_text(found: str) -> str: ...
def unmatched_rules(dataset: Dataset, plan: str) -> tuple[bool, list[str]]: ...
def end_codecs() -> None: ...
def register_codec(adapter: object) -> str: ...
def lerobot_request(dataset: Dataset, options: str) -> str: ...
def robomimic_request(dataset: Dataset, options: str) -> str: ...
def add_ffmpeg_folder(folder: str | PathLike[str]) -> None: ...
def copy_mp4(source: str | PathLike[str], target: str | PathLike[str]) -> None: ...
def jpeg_shape(file: bytes) -> tuple[int, int, int]: ...
def idle(compute_ratio: float, gpu_price: float | None, gpus: int) -> tuple[str, list[str]]: ...
def report_html(measured: str, is_whole: bool) -> str: ...
def run_cli(argv: list[str]) -> int: ...
def escape(text: str) -> str: ...
def verify(
    path: str | PathLike[str],
    decode: bool,
    root: str | PathLike[str] | None,
    part: str | None,
) -> list[tuple[str, str]]: ...

@type_check_only
class Options(TypedDict):
    mode: str
    plan_toml: str | None
    plan_json: str | None
    quality: int | None
    shard_bytes: int
    memory_bytes: int
    threads: int
    attributes: str
    settings: dict[str, str]
    created: str | None

@type_check_only
class DoctorArgs(TypedDict):
    step: float | Callable[[dict[str, Any]], object]
    target: float
    seconds: float
    gpu_price: float | None
    gpus: int

@type_check_only
class PlanArgs(TypedDict):
    step_s: float
    ranks: int
    cores: int | None
    host_memory: int | None
    storage: str | None
    bounds: str
    foreign: list[str]
    allow_resize: bool
    max_bytes: int | None
    max_pack_s: float | None
    hours: float | None
    gpu_price: float | None
    seconds: float
    whole: str | None
    signal: bool
    probe: ProbeArgs

@type_check_only
class SampleArgs(TypedDict):
    source: SourceArgs
    requested: list[str]
    max_bytes: int
    plan: str

@type_check_only
class ProbeArgs(TypedDict):
    inputs: list[tuple[str, list[int] | None]]
    targets: list[tuple[str, list[int] | None]]
    chunk: int
    size: tuple[int, int] | None
    crop: tuple[int, int] | None
    encoder: str
    features: int
    seeds: int
    folds: int
    seconds: float
    margin: float
    seed: int

@type_check_only
class VerifyArgs(TypedDict):
    found: str
    plan: int

@type_check_only
class SourceArgs(TypedDict):
    format: str | None
    mapping: str | PathLike[str] | None
    rate_hz: float | None
    streams: list[str]
    exclude: list[str]
    episodes: list[str]
    follow_links: bool
    keep_dtype: bool

@type_check_only
class PackArgs(TypedDict):
    writer: Options
    source: SourceArgs
    on_defect: str
    seed: int
    prefix: str
    link: LinkArgs | None

@type_check_only
class PartArgs(TypedDict):
    pack: PackArgs
    part: str

@type_check_only
class RepackArgs(TypedDict):
    writer: Options
    version: int | None
    root: str | PathLike[str] | None
    streams: list[str]
    exclude: list[str]
    episodes: list[str]
    allow_generation_loss: bool

@type_check_only
class LinkArgs(TypedDict):
    root: str | PathLike[str] | None
    trust: bool
    pack_rest: bool

@type_check_only
class ExportArgs(TypedDict):
    to: str
    version: int | None
    root: Path | None
    selection: str
    on_defect: str
    cameras: str
    part: str | None

@type_check_only
class EpisodeArgs(TypedDict):
    id: str | None
    splits: list[str]
    task: str | None
    success: bool | None
    licence: str | None
    consent: str | None
    source: str | None
    attributes: str
    labels: dict[str, bool | int | float | str]
    protect: list[tuple[str, float, float]]

@type_check_only
class StreamArgs(TypedDict):
    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    frames: int
    rate_hz: float | None
    timestamps_ns: npt.NDArray[np.int64] | None
    values: npt.NDArray[np.uint8] | None
    files: list[bytes] | None

def loader_options() -> str: ...
def parse_bytes(text: str) -> int: ...
def show_bytes(count: int) -> str: ...
