"""Measure `av1` on a real robot camera, next to the video that LeRobot writes.

    pip install av numpy
    cargo build --release -p kino_codec --example video
    python bench/codecs/video.py [episode.mp4] [--frames 120]

Prints one Markdown table. Both sides get the same RGB frames and return RGB frames, on one thread each; the
passes alternate, and the best of several counts. PSNR is over all values of all frames, from what each side decoded.
LeRobot's side is PyAV: SVT-AV1, yuv420p, crf 30, decoded by dav1d and converted by swscale.

Everything that is timed is also checked: dav1d decodes our stream to the same pixels as our own decoder.
"""

import argparse
import io
import os
import pathlib
import subprocess
import tempfile
import time

import av
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("KINOGRAPH_TEST_DATA", ROOT.parent / "shared" / "data"))
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
EXAMPLE = TARGET / "release/examples/video"
# The FFmpeg of PyAV, and none of SVT-AV1's notes.
ENVIRONMENT = os.environ | {
    "KINOGRAPH_FFMPEG": str(pathlib.Path(av.__file__).parents[1] / "av.libs"),
    "SVT_LOG": "1",
}
EPISODE = DATA / "real/g1_lerobot/videos/chunk-000/observation.images.cam_high/episode_000029.mp4"
PASSES = 9
RANDOM_FRAMES = 40


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Decibels over all values."""
    mean = np.mean([np.square(x.astype(np.int32) - y).mean() for x, y in zip(a, b, strict=True)])
    return float(10 * np.log10(255**2 / mean))


class Peer:
    """A video file made and read by PyAV."""

    def __init__(self, frames: np.ndarray, group: int, crf: int) -> None:
        self.name = f"SVT-AV1 g={group} crf {crf}" + (
            ", LeRobot's default" if (group, crf) == (2, 30) else ""
        )
        file = io.BytesIO()
        start = time.process_time()
        with av.open(file, "w", format="mp4") as video:
            stream = video.add_stream("libsvtav1", rate=30)
            stream.height, stream.width = frames.shape[1:3]
            stream.pix_fmt = "yuv420p"
            stream.options = {"g": str(group), "crf": str(crf)}
            for frame in frames:
                video.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            video.mux(stream.encode())
        self.fps = len(frames) / (time.process_time() - start)
        self.file = file.getvalue()
        with self.open() as video:
            packets = [packet for packet in video.demux(video=0) if packet.size]
            self.times = [packet.pts for packet in packets]
            self.bytes = sum(packet.size for packet in packets) / len(frames)
        self.psnr = psnr(np.stack(self.decode()), frames)

    def open(self) -> av.container.InputContainer:
        """Open the file for one thread."""
        video = av.open(io.BytesIO(self.file))
        video.streams.video[0].codec_context.thread_count = 1
        video.streams.video[0].thread_type = "NONE"
        return video

    def decode(self) -> list[np.ndarray]:
        """All frames."""
        with self.open() as video:
            return [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]

    def sequence(self) -> float:
        """Seconds per frame, all in order."""
        with self.open() as video:
            start = time.perf_counter()
            count = sum(
                1 for frame in video.decode(video=0) if frame.to_ndarray(format="rgb24").size
            )
            return (time.perf_counter() - start) / count

    def random(self, seed: int) -> float:
        """Seconds per frame at random positions."""
        chosen = np.random.default_rng(seed).choice(self.times, RANDOM_FRAMES)
        with self.open() as video:
            stream = video.streams.video[0]
            start = time.perf_counter()
            for wanted in chosen:
                video.seek(int(wanted), stream=stream)
                frame = next(frame for frame in video.decode(video=0) if frame.pts >= wanted)
                frame.to_ndarray(format="rgb24")
            return (time.perf_counter() - start) / RANDOM_FRAMES


class Ours:
    """The example program `video`, which encodes once and then times a pass on each request."""

    def __init__(self, frames: np.ndarray, work: pathlib.Path, spec: str) -> None:
        self.name = f"`{spec}`"
        raw = work / "frames.bin"
        frames.tofile(raw)
        shape = ",".join(map(str, frames.shape[1:]))
        command = [EXAMPLE, f"uint8[{shape}]", raw, spec]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        _, size = self.process.stdout.readline().split()
        self.bytes, self.fps = (
            int(size) / len(frames),
            len(frames) / cpu_seconds(self.process.pid),
        )
        self.ask(f"write {work / 'back.bin'}")
        back = np.fromfile(work / "back.bin", dtype=np.uint8).reshape(frames.shape)
        self.psnr = psnr(back, frames)
        self.ask(f"stream {work / 'stream.obu'}")
        self.check(work / "stream.obu", back)

    def ask(self, line: str) -> str:
        """Send a line; returns the answer."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def check(self, stream: pathlib.Path, back: np.ndarray) -> None:
        """Check that dav1d's planes, converted as in spec/codecs/av1.md, are our pixels."""
        with av.open(str(stream), format="obu") as video:
            for frame, ours in zip(video.decode(video=0), back, strict=True):
                planes = [plane_of(plane) for plane in frame.planes]
                y, u, v = planes[0], *(half.repeat(2, 0).repeat(2, 1) for half in planes[1:])
                assert np.array_equal(
                    to_rgb(y, u[: len(y), : y.shape[1]], v[: len(y), : y.shape[1]]), ours
                )

    def sequence(self) -> float:
        """Seconds per frame, all in order."""
        return float(self.ask("sequence"))

    def random(self, seed: int) -> float:
        """Seconds per frame at random positions."""
        return float(self.ask(f"random {seed}"))


def cpu_seconds(pid: int) -> float:
    """CPU seconds used so far by all threads of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def plane_of(plane: av.video.plane.VideoPlane) -> np.ndarray:
    """Bytes of a plane without padding."""
    return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[
        : plane.height, : plane.width
    ]


def to_rgb(y: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Convert as in spec/codecs/av1.md."""
    y, u, v = 64 * y.astype(np.int32), u.astype(np.int32) - 128, v.astype(np.int32) - 128
    channels = [y + (22970 * v >> 8), y - (5638 * u >> 8) - (11700 * v >> 8), y + (29032 * u >> 8)]
    return np.stack(
        [np.clip(channel + 32 >> 6, 0, 255).astype(np.uint8) for channel in channels], -1
    )


def main() -> None:
    """Measure both sides alternately and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("episode", nargs="?", type=pathlib.Path, default=EPISODE)
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--quality", default="q=77", help="`q=…` or `psnr=…` of all rows")
    parser.add_argument("--groups", default="2,8,15,30,60")
    parser.add_argument("--speeds", default="7", help="each is measured at every group length")
    args = parser.parse_args()
    frames = []
    with av.open(str(args.episode)) as video:
        for frame in video.decode(video=0):
            frames.append(frame.to_ndarray(format="rgb24"))
            if len(frames) == args.frames:
                break
    frames = np.stack(frames)
    with tempfile.TemporaryDirectory() as work:
        sides = [Peer(frames, 2, 30), Peer(frames, 30, 30), Peer(frames, 30, 12)]
        for speed in args.speeds.split(","):
            for group in args.groups.split(","):
                sides.append(
                    Ours(
                        frames,
                        pathlib.Path(work),
                        f"av1:{args.quality},group={group},speed={speed}",
                    )
                )
        # Alternating, again and again: other load on the machine then affects all equally.
        best = [[float("inf")] * 2 for _ in sides]
        for turn in range(PASSES):
            for side, times in zip(sides, best, strict=True):
                times[0] = min(times[0], side.sequence())
                times[1] = min(times[1], side.random(turn % 3))
    height, width = frames.shape[1:3]
    print(
        f"{len(frames)} frames of {height}×{width}; best of {PASSES} alternating passes, one thread, RGB out\n"
    )
    print(
        "| codec | bytes/frame | of default | PSNR dB | sequence ms | of default | random ms | encode frames/s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for side, (sequence, random) in zip(sides, best, strict=True):
        print(
            f"| {side.name} | {side.bytes:,.0f} | {side.bytes / sides[0].bytes:.2f} | {side.psnr:.2f} "
            f"| {sequence * 1e3:.2f} | {sequence / best[0][0]:.2f} | {random * 1e3:.1f} | {side.fps:.0f} |"
        )


if __name__ == "__main__":
    main()
