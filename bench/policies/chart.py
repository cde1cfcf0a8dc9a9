"""Draws how busy the GPU is: `python bench/policies/chart.py`.

bench/results/policies.csv → docs/measurements/gpu_busy.svg, a bar per policy and feed:

    ACT     ██████████████ 99 % █┆     Kinograph
            ██████████ 81 % █    ┆     HDF5 DataLoader
                                 ┆     the same step on a batch that is already on the GPU

A bar is the median of the rounds. Plain text, no plotting library: the same CSV gives the same bytes.
"""

import csv
import pathlib
import statistics

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "policies.csv"
CHART = ROOT / "docs" / "measurements" / "gpu_busy.svg"

POLICIES = {
    "act": ("ACT", "2 cameras, 480 × 640"),
    "diffusion": ("Diffusion policy", "2 cameras × 2 steps, 224 × 224"),
    "bc": ("BC-RNN", "2 cameras × 10 steps, 84 × 84"),
}
FEEDS = {"kinograph": ("Kinograph", "#d9480f"), "hdf5": ("HDF5 DataLoader, 16 workers", "#868e96")}
# What the GPU reaches when nothing has to be loaded.
CEILING = "synthetic"

LEFT, SCALE, BAR, GAP, TOP = 230, 4.6, 22, 30, 74
WIDTH = 760


def medians() -> dict[tuple[str, str], float]:
    """Give the median GPU utilisation of every policy and feed, in percent."""
    rounds: dict[tuple[str, str], list[float]] = {}
    with RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            rounds.setdefault((row["policy"], row["feed"]), []).append(float(row["gpu_percent"]))
    return {key: statistics.median(values) for key, values in rounds.items()}


def text(x: float, y: float, what: str, *, style: str = "", anchor: str = "start") -> str:
    """Render a line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{what}</text>'


def policy(top: float, name: str, busy: dict[tuple[str, str], float]) -> list[str]:
    """Render the bars of one policy, and the line that no loader can pass."""
    title, about = POLICIES[name]
    lines = [
        text(LEFT - 14, top + 18, title, style="name", anchor="end"),
        text(LEFT - 14, top + 36, about, style="note", anchor="end"),
    ]
    for place, (feed, (_, colour)) in enumerate(FEEDS.items()):
        percent = busy[name, feed]
        y = top + place * (BAR + 2)
        width = percent * SCALE
        lines.append(
            f'<rect x="{LEFT}" y="{y:g}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>'
        )
        lines.append(
            text(LEFT + width - 8, y + 16, f"{percent:.0f} %", style="value", anchor="end")
        )
    x = LEFT + busy[name, CEILING] * SCALE
    bottom = top + len(FEEDS) * (BAR + 2)
    lines.append(f'<path d="M{x:.1f} {top - 4:g}V{bottom + 2:g}" class="ceiling"/>')
    return lines


def chart(busy: dict[tuple[str, str], float]) -> str:
    """Render the whole drawing."""
    height = TOP + len(POLICIES) * (len(FEEDS) * (BAR + 2) + GAP) + 4
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>GPU busy time while training three policies on one H200</title>",
        "<style>text{font:14px system-ui,sans-serif;fill:#212529}.name,.head{font-weight:600}.head{font-size:16px}"
        ".note{font-size:12px;fill:#495057}.value{font-size:13px;fill:#ffffff}.ceiling{stroke:#212529;stroke-dasharray:3 3;fill:none}</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        text(20, 28, "GPU busy while training, one H200 (higher is better)", style="head"),
    ]
    x = 20
    for name, colour in FEEDS.values():
        lines.append(f'<rect x="{x}" y="42" width="12" height="12" fill="{colour}"/>')
        lines.append(text(x + 18, 53, name, style="note"))
        x += 44 + 7 * len(name)
    lines.append(f'<path d="M{x + 6} 40V56" class="ceiling"/>')
    lines.append(text(x + 18, 53, "batch already on the GPU: the ceiling", style="note"))
    for place, name in enumerate(POLICIES):
        lines += policy(TOP + place * (len(FEEDS) * (BAR + 2) + GAP), name, busy)
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    CHART.write_text(chart(medians()), "utf-8")
