"""What is run: the arms and training seeds of each part of the study."""

from __future__ import annotations

#: Codec augmentation: half of the samples as recorded, the rest at one of these.
AUGMENTED = {"raw": 0.5, "jpeg95": 0.125, "jpeg75": 0.125, "jpeg50": 0.125, "jpeg30": 0.125}
#: What is run in each part, most important first: arms, seeds, and the modes beside raw frames.
PARTS = {
    "first": (["raw", "augmented", "jpeg75", "av1-37"], range(100, 110)),
    "control": (["blur4", "jpeg15"], range(100, 104)),
    "order": (["raw@0.05", "raw@0.1", "raw@0.25", "raw@torch"], range(100, 105)),
}
#: Codecs that policies are fed which did not train on them.
CROSS = ["jpeg95", "jpeg40"]
