"""Renders the comparison for docs/measurements/comparison.md: `python bench/peers/report.py`.

bench/results/peers.csv            one line per slot        → tables, each ratio the median of the ratios within a round
bench/results/peers_systems.csv    bytes, quality, versions
bench/results/peers_floor.csv      the engine, compared with its floor
→ docs/measurements/comparison.md between its markers, docs/measurements/comparison.svg
"""

import csv
import dataclasses
import json
import math
import pathlib
import statistics
from collections import defaultdict
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "measurements" / "comparison.md"
START, END = "<!-- tables: bench/peers/report.py -->", "<!-- end of tables -->"
TITLES = {
    "W1:lift:b16:u8": "W1: windows of ten steps, batch 16",
    "W1:lift:b64:u8": "W1: windows of ten steps, batch 64",
    "W2:aloha:b8:f1:c50:u8": "W2: one frame of each camera, 50 actions, batch 8",
    "W2:aloha:b8:f2:c50:u8": "W2: two frames of each camera, 50 actions, batch 8",
    "W2:aloha:b8:f1:c50:f32": "W2: one frame, as float32",
    "W2:aloha:b8:f2:c50:f32": "W2: two frames, as float32",
    "W3:lift:b8:u8": "W3: whole episodes, padded, batch 8",
}
# What the others are divided by: the first of these that a workload has.
BASES = ("kinograph JPEG 95, a tenth", "kinograph JPEG 95, a quarter", "kinograph AV1, a quarter")
PACKAGED = ("DALI", "WebDataset", "MDS", "LitData", "SPDL")
VIDEO = ("LeRobot AV1", "LeRobot H.264")


@dataclasses.dataclass
class Slots:
    """What was measured, by workload and system."""

    rows: dict[tuple[str, str], list[dict[str, str]]]
    about: dict[tuple[str, str], dict[str, str]]

    def systems(self, workload: str) -> list[str]:
        """List the systems of a workload, the cheapest first."""
        found = [system for at, system in self.rows if at == workload]
        return sorted(found, key=lambda system: self.median(workload, system, "cpu_ms"))

    def values(self, workload: str, system: str, field: str) -> list[float]:
        """Return a figure of each round."""
        return [float(row[field]) for row in self.rows[workload, system] if row[field]]

    def median(self, workload: str, system: str, field: str) -> float:
        """Return the median of a figure's rounds; NaN if there is none."""
        values = self.values(workload, system, field)
        return statistics.median(values) if values else float("nan")

    def ratio(self, workload: str, above: str, below: str) -> float:
        """Divide the CPU time of two systems round by round; returns the median."""
        rounds = {row["round"]: float(row["cpu_ms"]) for row in self.rows[workload, below]}
        found = [
            float(row["cpu_ms"]) / rounds[row["round"]]
            for row in self.rows[workload, above]
            if row["round"] in rounds
        ]
        return statistics.median(found) if found else float("nan")

    def disk(self, workload: str, system: str) -> int:
        """Return the size of a system's files in bytes."""
        return int(self.about[workload, system]["disk_bytes"])

    def has(self, workload: str, *systems: str) -> bool:
        """Whether all of these were measured."""
        return all((workload, system) in self.rows for system in systems)


def load() -> Slots:
    """Read the results of the runs."""
    about = {(row["workload"], row["system"]): row for row in _read("peers_systems.csv")}
    rows = defaultdict(list)
    for row in _read("peers.csv"):
        # A run that was stopped early leaves slots of systems that it had not checked.
        if (row["workload"], row["system"]) in about:
            rows[row["workload"], row["system"]].append(row)
    return Slots(dict(rows), about)


def _read(name: str) -> list[dict[str, str]]:
    path = RESULTS / name
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(slots: Slots, workload: str) -> list[str]:
    """Render one workload."""
    systems = slots.systems(workload)
    base = next(system for system in BASES if slots.has(workload, system))
    lines = [
        f"### {TITLES[workload]}",
        "",
        f"| system | CPU ms per sample | ÷ {base.removeprefix('kinograph ')} | samples/s | first batch s | memory MB | disk MB | PSNR dB | VIF | rounds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for system in systems:
        psnr = float(slots.about[workload, system]["psnr_db"])
        vif = slots.median(workload, system, "vif")
        cells = [
            f"**{system}**" if system.startswith("kinograph") else system,
            figure(slots.median(workload, system, "cpu_ms")),
            figure(slots.ratio(workload, system, base)),
            f"{slots.median(workload, system, 'samples_per_s'):,.0f}",
            figure(slots.median(workload, system, "first_batch_s")),
            f"{slots.median(workload, system, 'private_mb'):,.0f}",
            f"{slots.disk(workload, system) / 1e6:,.0f}",
            "exact" if psnr > 98 else f"{psnr:.1f}",
            "1.0" if vif != vif else f"{vif:.1f}",  # noqa: PLR0124 (NaN: uniformly random)
            str(len(slots.rows[workload, system])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    first = [
        f"{system.removeprefix('kinograph ')} {figure(slots.median(workload, system, 'warm_cpu_ms'))} ms"
        for system in systems
        if system.startswith("kinograph") and system.endswith("all")
    ]
    if first:
        lines += ["", f"In the first epoch, including decoding and startup: {', '.join(first)}."]
    left_out = [
        f"{row['system']} ({row['state'].splitlines()[0][:80]})"
        for (at, _), row in slots.about.items()
        if at == workload and row["state"] != "checked"
    ]
    return [*lines, "", *([f"Not measured: {'; '.join(left_out)}.", ""] if left_out else [])]


def figure(value: float) -> str:
    """Format with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def at_most(
    slots: Slots, workload: str, ours: str, peers: Iterable[str], limit: float
) -> list[str]:
    """Compare CPU time with the best of several peers."""
    measured = [peer for peer in peers if slots.has(workload, ours, peer)]
    ratios = [(slots.ratio(workload, ours, peer), peer) for peer in measured]
    # NaN if the two share no round.
    found = [pair for pair in ratios if not math.isnan(pair[0])]
    if not found:
        return []
    ratio, peer = max(found)
    what = f"{TITLES[workload]}: {ours.removeprefix('kinograph ')}, CPU ÷ {peer}"
    return [bar(what, fraction(limit), fraction(ratio), ratio <= limit)]


def at_most_bytes(slots: Slots, workload: str, ours: str, peer: str, limit: float) -> list[str]:
    """Compare bytes."""
    if not slots.has(workload, ours, peer):
        return []
    ratio = slots.disk(workload, ours) / slots.disk(workload, peer)
    what = (
        f"{TITLES[workload].partition(':')[0]}: {ours.removeprefix('kinograph ')}, bytes ÷ {peer}"
    )
    return [bar(what, fraction(limit), fraction(ratio), ratio <= limit)]


def fraction(ratio: float) -> str:
    """Format a ratio for display."""
    return f"1/{1 / ratio:.1f}" if ratio < 0.6 else f"{ratio:.2f}"


def bar(what: str, limit: str, measured: str, met: bool) -> str:
    """Render a line of the table of targets."""
    return f"| {what} | {limit} | {measured} | {'yes' if met else '**no**'} |"


def bars(slots: Slots) -> list[str]:
    """Render what was aimed for beside what was reached."""
    lines = ["### Targets", "", "| | at most | measured | met |", "|---|---|---|---|"]
    for workload in ("W1:lift:b16:u8", "W1:lift:b64:u8"):
        for pool in ("a twentieth", "a tenth", "all"):
            ours = f"kinograph JPEG 95, {pool}"
            lines += at_most(slots, workload, ours, PACKAGED, 1 / 8)
            lines += at_most(slots, workload, ours, ["FFCV JPEG, frames"], 1 / 8)
            lines += at_most(slots, workload, ours, ["JPEG store, threads"], 1 / 5)
            lines += at_most(slots, workload, ours, ["np.memmap, threads"], 2)
            for plan in ("lossless", "lossless groups"):
                exact = f"kinograph {plan}, {pool}"
                lines += at_most(slots, workload, exact, ["robomimic, low_dim cache"], 1 / 4)
    first = "W1:lift:b16:u8"
    lines += at_most_bytes(slots, first, "kinograph JPEG 95, a tenth", "np.memmap, threads", 1 / 9)
    for plan in ("lossless", "lossless groups"):
        exact = f"kinograph {plan}, a tenth"
        lines += at_most_bytes(slots, first, exact, "robomimic, low_dim cache", 1 / 4)
    for frames, limit in ((1, 1 / 5), (2, 1 / 8)):
        floats = f"W2:aloha:b8:f{frames}:c50:f32"
        lines += at_most(slots, floats, "kinograph AV1, a quarter", VIDEO, limit)
        whole = f"W2:aloha:b8:f{frames}:c50:u8"
        for plan in ("JPEG 95", "lossless"):
            lines += at_most(slots, whole, f"kinograph {plan}, a quarter", ["h5py (ACT)"], 1)
    for peer in VIDEO:
        lines += at_most_bytes(slots, "W2:aloha:b8:f1:c50:f32", "kinograph AV1, a quarter", peer, 1)
        lines += quality(slots, "W2:aloha:b8:f1:c50:f32", "kinograph AV1, a quarter", peer)
    return [*lines, *amplification(slots), ""]


def quality(slots: Slots, workload: str, ours: str, peer: str) -> list[str]:
    """Compare PSNR."""
    if not slots.has(workload, ours, peer):
        return []
    mine, other = (float(slots.about[workload, one]["psnr_db"]) for one in (ours, peer))
    what = f"W2: {ours.removeprefix('kinograph ')}, PSNR compared with {peer} (at least)"
    return [bar(what, f"{other:.1f} dB", f"{mine:.1f} dB", mine >= other)]


def amplification(slots: Slots) -> list[str]:
    """Render how often a frame was decoded per epoch, and how much the pool held."""
    lines = []
    for (workload, system), rows in sorted(slots.rows.items()):
        if not (
            workload.startswith("W1") and system.startswith("kinograph") and "all" not in system
        ):
            continue
        about = json.loads((ROOT / "target" / "peers" / "data" / "lift.json").read_text())
        frames = sum(about["lengths"]) * (len(about["cameras"]) + len(about["vectors"]) + 1)
        epochs = sum(float(row["epochs"]) for row in rows)
        ratio = sum(int(row["frames_decoded"]) for row in rows) / frames / epochs
        batch = workload.split(":")[2][1:]
        name = system.removeprefix("kinograph ")
        what = f"W1, batch {batch}: {name}, frames decoded ÷ distinct frames"
        lines.append(bar(what, "1.10", f"{ratio:.2f}", ratio <= 1.1))
        peak, memory = (
            max(slots.values(workload, system, one)) for one in ("pool_peak_mb", "memory_mb")
        )
        share = peak / float(rows[0]["decoded_mb"])
        what = f"W1, batch {batch}: {name}, MB of decoded frames held ({share:.0%} of the dataset)"
        lines.append(bar(what, f"{memory:.1f}", f"{peak:.1f}", peak <= memory))
    return lines


def floors() -> list[str]:
    """Render the engine and its lower bound."""
    lines = [
        "### Compared with the floor",
        "",
        "| | codec | shuffled at a time | µs per sample | floor: decode + copy | floor ÷ measured | at least | met |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in _read("peers_floor.csv"):
        least = 0.7 if row["case"].startswith("W1") else 0.85
        met = "yes" if float(row["floor_ratio"]) >= least else "**no**"
        lines.append(
            f"| {row['case']} | {row['plan']} | {float(row['pool']):.0%} | {row['cpu_us']} | "
            f"{row['floor_decode_us']} + {row['floor_copy_us']} | {row['floor_ratio']} | {least} | {met} |"
        )
    return [*lines, ""]


def versions(slots: Slots) -> list[str]:
    """List the packages that were measured."""
    found: dict[str, str] = {}
    for row in slots.about.values():
        found |= json.loads(row["versions"] or "{}")
    listed = ", ".join(f"{package} {version}" for package, version in sorted(found.items()))
    return ["### Versions", "", f"{listed}.", ""]


def disturbance(slots: Slots) -> list[str]:
    """Render the other load on the machine."""
    others = [float(row["other_cores"]) for rows in slots.rows.values() for row in rows]
    middle, most = statistics.median(others), max(others)
    text = f"Other programs kept {middle:.1f} of the cores busy (median of the slots; {most:.1f} at most)."
    return [text, ""]


def draw(slots: Slots) -> None:
    """Plot CPU time against bytes, the trade-off of every store."""
    import matplotlib  # noqa: PLC0415 (only installed in the environment of the comparison)

    matplotlib.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    matplotlib.rcParams["svg.hashsalt"] = "comparison"
    shown = [one for one in ("W1:lift:b16:u8", "W2:aloha:b8:f1:c50:u8") if slots.systems(one)]
    figure_, axes = pyplot.subplots(1, len(shown), figsize=(6 * len(shown), 5), squeeze=False)
    for axis, workload in zip(axes[0], shown, strict=True):
        for system in slots.systems(workload):
            place = (
                slots.disk(workload, system) / 1e6,
                slots.median(workload, system, "cpu_ms"),
            )
            ours = system.startswith("kinograph")
            axis.plot(*place, "o", color="tab:red" if ours else "tab:gray")
            axis.annotate(system, place, fontsize=6, xytext=(3, 3), textcoords="offset points")
        axis.set(xscale="log", yscale="log", xlabel="MB on disk", ylabel="CPU ms per sample")
        axis.set_title(TITLES[workload], fontsize=9)
    figure_.tight_layout()
    figure_.savefig(PAGE.with_suffix(".svg"), metadata={"Date": None})


def main() -> None:
    """Write the tables into the page, and the plot next to it."""
    slots = load()
    lines = disturbance(slots) + bars(slots) + floors()
    for workload in TITLES:
        if slots.systems(workload):
            lines += table(slots, workload)
    text = "\n".join(lines + versions(slots))
    write_between(PAGE, text)
    draw(slots)


def write_between(page: pathlib.Path, text: str) -> None:
    """Replace the text between the markers of a page."""
    before, _, rest = page.read_text().partition(START)
    page.write_text(f"{before}{START}\n\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
