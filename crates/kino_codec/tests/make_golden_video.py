"""Writes golden/video-av1.txt, unless it is there: a page of two AV1 groups, and its pixels as PyAV decodes them.

    python crates/kino_codec/tests/make_golden_video.py

The page is assembled here, from spec/codecs/video.md alone.
"""

import io
import pathlib

import av
import numpy as np

FRAMES, HEIGHT, WIDTH = 6, 64, 66


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode():
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libsvtav1", 30, options={"g": "3", "crf": "50"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        y, x = np.mgrid[:HEIGHT, :WIDTH]
        for t in range(FRAMES):
            shot = np.stack([x * 3 + 9 * t, y * 3 + 5 * t, x + y + 40 * t], axis=-1) % 256
            frame = av.VideoFrame.from_ndarray(shot.astype(np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    file.seek(0)
    return file


def main():
    path = pathlib.Path(__file__).parent / "golden/video-av1.txt"
    if path.exists():
        return
    with av.open(encode()) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        config = bytes(stream.codec_context.extradata)
        frames = [frame for packet in packets for frame in packet.decode()]
        frames += stream.codec_context.decode(None)
    shown = sorted(packet.pts for packet in packets)
    page = varint(len(config)) + config + b"\0" + varint(len(packets))
    for packet in packets:
        page += varint(2 * packet.size + packet.is_keyframe)
        page += varint(1 + shown.index(packet.pts))
    page += b"".join(bytes(packet) for packet in packets)
    pixels = b"".join(frame.to_ndarray(format="rgb24").tobytes() for frame in frames)
    text = "codec video:coding=av1\ndtype uint8\n"
    text += f"shape {HEIGHT},{WIDTH},3\nshared \npage {len(frames)} {page.hex()}\nvalues {pixels.hex()}\n"
    path.write_text(text)


main()
