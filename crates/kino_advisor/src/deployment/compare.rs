//! The live frames of one camera beside its training frames: what differs, what that means, and what to do.
//!
//! ```text
//! live frames ──▶ shape, dtype      differ from what was stored: the policy sees something else       mismatches
//!             ──▶ traces of JPEG    in the live frames and not in the training frames, or the reverse  codecs
//!             ──▶ red and blue      fit better when swapped                                            colors
//!             ──▶ figures           further away than training frames are from each other              figures
//! ```

use std::collections::BTreeMap;

use kino_dataset::{Appearance, Figure, JpegSeen};

use super::check::{Deviation, Severity};
use super::live::{Mismatch, Seen, Values};
use super::parity::StreamParity;
use super::reference::{StreamReference, distance, is_jpeg};

/// JPEG qualities that differ by more than this are different.
const QUALITIES: u8 = 8;

/// Live frames of one camera beside its training frames.
pub(super) struct Comparison<'a> {
    pub(super) key: &'a StreamParity,
    pub(super) known: &'a StreamReference,
    pub(super) seen: &'a Seen,
}

impl Comparison<'_> {
    fn deviation(&self, check: &str, severity: Severity, texts: [String; 3]) -> Deviation {
        let [what, why, action] = texts;
        Deviation {
            stream: self.key.key.clone(),
            check: check.to_owned(),
            severity,
            what,
            why,
            action,
            measured: BTreeMap::new(),
        }
    }

    /// Shape and dtype.
    pub(super) fn mismatches(&self) -> Vec<Deviation> {
        let one = |mismatch: &Mismatch| {
            let (check, texts) = match mismatch {
                Mismatch::Dtype { found, values } => (
                    "dtype",
                    [
                        format!("live frames are {found}, training frames uint8"),
                        "a policy that gets other numbers than in training sees another image"
                            .to_owned(),
                        match values {
                            Values::Unit => "they are from 0 to 1: multiply by 255 and round to uint8 before the policy's own preprocessing",
                            Values::Impossible => "some values are negative or NaN: pass frames as the camera delivers them, before they are normalised",
                            Values::Other => "convert them to uint8, from 0 to 255",
                        }
                        .to_owned(),
                    ],
                ),
                Mismatch::ChannelsFirst => (
                    "layout",
                    [
                        "the channels of live frames come first, in training frames they come last"
                            .to_owned(),
                        "a policy would take rows for channels".to_owned(),
                        "transpose them: `frame.transpose(1, 2, 0)`".to_owned(),
                    ],
                ),
                Mismatch::Channels { found, expected } => (
                    "channels",
                    [
                        format!("live frames have {found} channels, training frames {expected}"),
                        "a policy cannot use another number of channels".to_owned(),
                        "deliver the channels that were recorded, without alpha".to_owned(),
                    ],
                ),
                Mismatch::Size { found, expected } => (
                    "size",
                    [
                        format!("live frames are {found}, training frames {expected}"),
                        "another resize, or none, changes sharpness and field of view".to_owned(),
                        format!(
                            "deliver {expected} as the recorder did, with the same crop and the same resize"
                        ),
                    ],
                ),
            };
            self.deviation(check, Severity::High, texts)
        };
        self.seen.mismatches.iter().map(one).collect()
    }

    /// Traces of JPEG on one side only, or of different quality.
    pub(super) fn codecs(&self) -> Option<Deviation> {
        let training = is_jpeg(self.known.jpeg);
        let live = is_jpeg(self.seen.jpeg).filter(|seen| {
            // What a simulator draws may look a little like steps: only what fits better than in any training episode counts.
            training.is_some() || seen.fit > self.known.jpeg_fit + 0.1
        });
        let (severity, texts) = match (live, training) {
            (Some(live), None) => self.lossy_live(live),
            (None, Some(training)) if !self.seen.is_resized && self.seen.jpeg.is_some() => (
                Severity::Medium,
                [
                    format!("training frames went through JPEG of about quality {}, live frames did not", training.quality),
                    "in our study policies trained on JPEG did not lose measurably on raw frames, but yours has never seen any".to_owned(),
                    "compare the policy's actions on raw frames and on the same frames after `ds.parity()`; keep what works better".to_owned(),
                ],
            ),
            (Some(live), Some(training)) if live.quality.abs_diff(training.quality) > QUALITIES => (
                Severity::Medium,
                [
                    format!("live frames went through JPEG of about quality {}, training frames of about {}", live.quality, training.quality),
                    "a policy learns the artefacts of its training frames".to_owned(),
                    "set the camera driver to the quality of the recording".to_owned(),
                ],
            ),
            _ => return None,
        };
        let mut found = self.deviation("codec", severity, texts);
        let sides = [("live", self.seen.jpeg), ("training", self.known.jpeg)];
        for (side, seen) in sides {
            if let Some(seen) = seen {
                found
                    .measured
                    .insert(format!("{side}_quality"), seen.quality.into());
                found.measured.insert(format!("{side}_fit"), seen.fit);
            }
        }
        Some(found)
    }

    fn lossy_live(&self, live: JpegSeen) -> (Severity, [String; 3]) {
        let what = format!(
            "live frames went through JPEG of about quality {}",
            live.quality
        );
        let action = "switch the camera driver to raw frames, or to lossless compression (ROS: subscribe to `image_raw`, not \
            `compressed`)";
        if self.key.stored.is_lossy {
            return (
                Severity::Medium,
                [
                    format!("{what}; training frames show no such traces, though they are stored with loss"),
                    "live frames carry artefacts of another codec than the one the policy was trained on".to_owned(),
                    format!("{action}; then repeat the loss of the dataset with `ds.parity()` if that helps the policy"),
                ],
            );
        }
        if self.seen.is_resized {
            return (
                Severity::Medium,
                [
                    format!(
                        "{what}; training frames were resized, so it cannot be seen whether they did too"
                    ),
                    "if they did not, this is the mistake that costs a policy most".to_owned(),
                    format!(
                        "compare the camera settings with those of the recording; if it had raw frames, {action}"
                    ),
                ],
            );
        }
        (
            Severity::High,
            [
                format!("{what}, training frames did not"),
                "on PushT, policies trained on raw frames and fed JPEG lost 20 points of success at quality 95 and 37 at 15".to_owned(),
                action.to_owned(),
            ],
        )
    }

    /// Red and blue that fit better when swapped.
    pub(super) fn colors(&self) -> Option<Deviation> {
        let cells = &self.known.red_blue;
        let frames = &self.seen.frames;
        if cells.is_empty() || frames.is_empty() {
            return None;
        }
        let mean: Vec<f64> = (0..cells.len())
            .map(|cell| mean_of(frames, |one| one.red_blue.get(cell).copied()).unwrap_or_default())
            .collect();
        let (as_is, swapped) = (distance(&mean, cells, 1.0), distance(&mean, cells, -1.0));
        if as_is <= self.known.red_blue_limit || swapped > as_is / 2.0 {
            return None;
        }
        let mut found = self.deviation(
            "channel order",
            Severity::High,
            [
                "the colors of live frames fit the training frames only with red and blue swapped".to_owned(),
                "OpenCV delivers BGR, most recorders store RGB; a policy takes one for the other silently".to_owned(),
                "reverse the channels: `frame[..., ::-1]`".to_owned(),
            ],
        );
        found.measured.insert("as_is".to_owned(), as_is);
        found.measured.insert("swapped".to_owned(), swapped);
        Some(found)
    }

    /// Black borders that training frames do not have, or the reverse.
    pub(super) fn borders(&self) -> Option<Deviation> {
        let frames = &self.seen.frames;
        if frames.is_empty() || !self.seen.mismatches.is_empty() {
            return None;
        }
        let sides = ["top", "bottom", "left", "right"];
        let changed: Vec<(&str, usize, (usize, usize))> = sides
            .into_iter()
            .zip(0..)
            .filter_map(|(name, side)| {
                let (least, most) = self.known.borders[side];
                let live = || frames.iter().map(|one| one.borders[side]);
                let fewest = live().min().unwrap_or_default();
                let widest = live().max().unwrap_or_default();
                // One row may be the blur of an edge.
                let is_new = fewest > most + 1;
                let is_gone = widest + 1 < least;
                (is_new || is_gone).then_some((
                    name,
                    if is_new { fewest } else { widest },
                    (least, most),
                ))
            })
            .collect();
        let (name, live, (least, most)) = *changed.first()?;
        let mut found = self.deviation(
            "black borders",
            Severity::High,
            [
                format!("live frames have {live} black rows or columns at the {name}, training frames {least} to {most}"),
                "letterboxing or another crop moves everything in the image".to_owned(),
                "use the aspect ratio and the crop of the recording".to_owned(),
            ],
        );
        for (name, live, _) in changed {
            found.measured.insert(name.to_owned(), live as f64);
        }
        Some(found)
    }

    /// Live, training, how far apart they are in standard deviations, and the limit.
    pub(super) fn figures(&self) -> BTreeMap<Figure, [f64; 4]> {
        let figures = self.known.figures.iter();
        let compared = figures.filter_map(|(&figure, spread)| {
            let live = mean_of(&self.seen.frames, |one| one.figure(figure))?;
            Some((figure, [live, spread.mean, spread.away(live), spread.limit]))
        });
        compared.collect()
    }

    pub(super) fn figure(
        &self,
        figure: Figure,
        [live, training, away, limit]: [f64; 4],
    ) -> Deviation {
        let severity = if away > 2.0 * limit {
            Severity::High
        } else {
            Severity::Medium
        };
        let (check, what, action) = describe(figure, live, training);
        let mut found = self.deviation(
            check,
            severity,
            [
                format!("{what} ({live:.2}, in training {training:.2}; {away:.1} standard deviations, {limit:.1} are usual)"),
                "training frames of other episodes differ less, so the policy has not learned to ignore it".to_owned(),
                action.to_owned(),
            ],
        );
        let values = [
            ("live", live),
            ("training", training),
            ("deviations", away),
            ("limit", limit),
        ];
        found
            .measured
            .extend(values.map(|(name, value)| (name.to_owned(), value)));
        found
    }
}

/// What was compared, what is different, and what to do.
fn describe(figure: Figure, live: f64, training: f64) -> (&'static str, String, &'static str) {
    let is_more = live > training;
    let pick = |more: &str, less: &str| if is_more { more } else { less }.to_owned();
    let exposure = "fix exposure, gain and lights as they were for the recording";
    let codec = "check the driver for compression, denoising and another resize";
    match figure {
        Figure::Brightness => (
            "brightness",
            pick("live frames are brighter", "live frames are darker"),
            exposure,
        ),
        Figure::Contrast => (
            "contrast",
            pick(
                "live frames have more contrast",
                "live frames have less contrast",
            ),
            exposure,
        ),
        Figure::Darkest => (
            "value range",
            pick(
                "the darkest parts are brighter",
                "the darkest parts are darker",
            ),
            "check exposure, and whether video is of limited range (16 to 235)",
        ),
        Figure::Brightest => (
            "value range",
            pick(
                "the brightest parts are brighter",
                "the brightest parts are darker",
            ),
            "check exposure, and whether video is of limited range (16 to 235)",
        ),
        Figure::RedGreen => (
            "color",
            pick("live frames are redder", "live frames are greener"),
            "fix the white balance as it was for the recording",
        ),
        Figure::BlueGreen => (
            "color",
            pick(
                "live frames are bluer",
                "live frames are greener, or yellower",
            ),
            "fix the white balance as it was for the recording",
        ),
        Figure::Sharpness => (
            "sharpness",
            pick("live frames are sharper", "live frames are blurred"),
            "focus and clean the lens; use the resize of the recording",
        ),
        Figure::Noise => (
            "noise",
            pick("live frames are noisier", "live frames have less noise"),
            "check gain and light, denoising and compression",
        ),
        Figure::Blocking => (
            "blocking",
            pick(
                "live frames have the 8 × 8 blocks of a codec",
                "training frames have the 8 × 8 blocks of a codec, live frames less",
            ),
            codec,
        ),
        Figure::Flat => (
            "smoothness",
            pick(
                "more pixels equal their neighbours",
                "fewer pixels equal their neighbours",
            ),
            codec,
        ),
    }
}

fn mean_of(frames: &[Appearance], value: impl Fn(&Appearance) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = frames.iter().filter_map(value).collect();
    let count = values.len() as f64;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
}
