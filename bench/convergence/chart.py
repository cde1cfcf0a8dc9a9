r"""Draws the validation losses: `python bench/convergence/chart.py`.

bench/results/convergence.csv → docs/measurements/convergence.svg, a panel per loss, a curve per order:

    │ \
    │  \____      1 episode
    │ ░░░▒▒▒▒     the other orders; the band holds all seeds of robomimic's own loader
    └────────
      epoch

A curve is the mean over seeds, on a logarithmic axis. Plain text, no plotting library: the same CSV gives the same bytes.
"""

from __future__ import annotations

import math
import statistics

from report import REFERENCE, ROOT, TITLES, read_curves

CHART = ROOT / "docs" / "measurements" / "convergence.svg"
COLORS = {
    "global": "#1971c2",
    "25 %": "#2f9e44",
    "10 %": "#f08c00",
    "5 %": "#d9480f",
    "1 episode": "#862e9c",
}
# The legend needs the least width.
LEAST_WIDTH, HEIGHT = 640, 400
PANEL, LEFT, TOP, BOTTOM = 300, 58, 92, 350
INNER = PANEL - 58

Panel = dict[str, dict[str, list[float]]]


def text(x: float, y: float, what: str, style: str = "note", anchor: str = "start") -> str:
    """Render a line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{what}</text>'


class Axes:
    """Where a value of a panel is drawn."""

    def __init__(self, number: int, runs: Panel) -> None:
        self.left = LEFT + number * PANEL
        values = [value for seeds in runs.values() for epochs in seeds.values() for value in epochs]
        self.low, self.high = min(values), max(values)
        self.epochs = max(len(epochs) for seeds in runs.values() for epochs in seeds.values())

    def x(self, epoch: int) -> float:
        """Place an epoch, from 0 on."""
        return self.left + INNER * epoch / (self.epochs - 1)

    def y(self, value: float) -> float:
        """Place a loss."""
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return BOTTOM - (BOTTOM - TOP) * part

    def line(self, values: list[float]) -> str:
        """List the points of a curve."""
        return " ".join(f"{self.x(k):.1f},{self.y(value):.1f}" for k, value in enumerate(values))

    def ticks(self) -> list[float]:
        """List the losses that the axis names: 1, 2 and 5 times powers of ten."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found = [step * 10.0**power for power in powers for step in (1, 1.5, 2, 3, 5, 7)]
        return [value for value in found if self.low <= value <= self.high]


def panel(number: int, loss: str, runs: Panel) -> list[str]:
    """Render the curves of one loss."""
    axes = Axes(number, runs)
    lines = [text(axes.left, TOP - 14, f"{TITLES[loss]} loss, held-out episodes", "name")]
    for value in axes.ticks():
        y = axes.y(value)
        lines.append(f'<path d="M{axes.left:g} {y:.1f}h{INNER}" class="grid"/>')
        lines.append(text(axes.left - 6, y + 4, f"{value:.2g}", anchor="end"))
    for epoch in range(4, axes.epochs, 5):
        lines.append(text(axes.x(epoch), BOTTOM + 18, str(epoch + 1), anchor="middle"))
    seeds = [list(values) for values in zip(*runs[REFERENCE].values(), strict=True)]
    top = axes.line([max(values) for values in seeds]).split()
    bottom = axes.line([min(values) for values in seeds]).split()
    lines.append(f'<polygon points="{" ".join(top + bottom[::-1])}" class="band"/>')
    for loader, color in COLORS.items():
        if loader in runs:
            means = [statistics.mean(values) for values in zip(*runs[loader].values(), strict=True)]
            lines.append(f'<polyline points="{axes.line(means)}" stroke="{color}"/>')
    return lines


def chart() -> str:
    """Render the whole drawing."""
    curves = read_curves()
    width = max(LEAST_WIDTH, LEFT + PANEL * len(curves))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" role="img">',
        "<title>Validation losses of BC-RNN on Lift by epoch, for each order of the samples</title>",
        "<style>text{font:14px system-ui,sans-serif;fill:#212529}.name,.head{font-weight:600}.head{font-size:16px}"
        ".note{font-size:12px;fill:#495057}.grid{stroke:#dee2e6}.band{fill:#ced4da}"
        "polyline{fill:none;stroke-width:1.6}</style>",
        f'<rect width="{width}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
        text(20, 28, "BC-RNN on Lift, validation loss by epoch of 100 steps", "head"),
        '<rect x="20" y="42" width="12" height="12" class="band"/>',
        text(38, 53, "robomimic's loader, all seeds"),
    ]
    x = 230
    for name, color in COLORS.items():
        lines.append(f'<path d="M{x} 48h18" stroke="{color}" stroke-width="2"/>')
        lines.append(text(x + 24, 53, name))
        x += 44 + 8 * len(name)
    for number, (loss, runs) in enumerate(curves.items()):
        lines += panel(number, loss, runs)
    lines.append(text(LEFT, BOTTOM + 38, "epoch; a curve is the mean over seeds"))
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    CHART.write_text(chart(), "utf-8")
