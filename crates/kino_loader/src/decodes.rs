//! How often a frame is decoded per epoch if all samples are shuffled and no decoded frame is kept; and how many frames
//! two ranks decode both if one has the samples of an episode up to some sample, and the other the rest.
//!
//! ```text
//! samples      0: frames 0 1      1: frames 1 2      2: frames 2 3 …       each frame in two samples: 2
//! pages        | 0 1 2 3 4 5 6 7 | 8 … |                                   frame 5 of a group is decoded after 0 to 4
//! ranks        samples 0 and 1 ▲ samples 2 and 3                           both decode frame 2, or the whole page
//! ```
//!
//! It follows from the windows and the pages, so a few episodes show it. One frame per sample in pages of one frame is
//! decoded once in any order; overlapping windows and groups of frames are why decoded frames are kept.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use kino_codec::FrameType;
use kino_dataset::{EpisodeSamples, NO_FRAME, Result, SampleFrames, Samples, at_once};

/// Looked at: this many episodes, spread over all, and this many samples in a row of each.
const EPISODES: usize = 4;
const SAMPLES: u32 = 512;

/// How often frames of image and depth streams are decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decodes {
    /// How often a frame is decoded per epoch under a global shuffle, if no decoded frame is kept.
    pub per_frame: f64,
    /// How many samples need a frame, or another one of its page.
    pub uses: f64,
    /// What both ranks decode where a run of an episode's samples is cut in two: as many frames as so many samples add.
    pub per_cut: f64,
}

impl Decodes {
    /// Where every frame is decoded once in any order: of no images, for instance.
    pub const ONCE: Self = Self {
        per_frame: 1.0,
        uses: 1.0,
        per_cut: 0.0,
    };

    /// Of the images that are requested; a few episodes are looked at.
    pub fn of(samples: &Samples) -> Result<Self> {
        let requested = samples.request().windows.len();
        let images: Vec<usize> = (0..requested)
            .filter(|&window| is_image(samples, window))
            .collect();
        let counts = samples.counts();
        let filled: Vec<usize> = (0..counts.len()).filter(|&at| counts[at] > 0).collect();
        let shown = filled.len().min(EPISODES);
        let shown = (0..shown).map(|nth| filled[nth * filled.len() / shown]);
        let shown: Vec<usize> = shown.filter(|_| !images.is_empty()).collect();
        let mut count = Count::default();
        // One that cannot be opened is reported when its turn comes in training.
        for episode in at_once(&shown, |&at| samples.opened(at))
            .into_iter()
            .flatten()
        {
            count.add(&episode, &images)?;
        }
        if count.different == 0.0 {
            return Ok(Self::ONCE);
        }
        Ok(Self {
            per_frame: count.decoded / count.different,
            uses: count.used / count.stored.max(1.0),
            per_cut: count.twice / count.cuts.max(1.0) / (count.different / count.samples),
        })
    }

    /// The most of several.
    pub(crate) fn most<'a>(samples: impl IntoIterator<Item = &'a Samples>) -> Result<Self> {
        let all = samples.into_iter().map(Self::of);
        all.into_iter().try_fold(Self::ONCE, |most, one| {
            let one = one?;
            Ok(Self {
                per_frame: most.per_frame.max(one.per_frame),
                uses: most.uses.max(one.uses),
                per_cut: most.per_cut.max(one.per_cut),
            })
        })
    }
}

/// Decodes and different frames, weighted by their bytes.
#[derive(Debug, Default)]
struct Count {
    samples: f64,
    decoded: f64,
    different: f64,
    /// All frames of the pages that were used, once, and for each sample that uses the page.
    stored: f64,
    used: f64,
    /// Places between two samples in a row; and what is decoded on both sides of them, all together.
    cuts: f64,
    twice: f64,
}

/// A page: the bytes of its frames, how many samples need it, and the first and the last of them.
struct Used {
    bytes: f64,
    count: u32,
    samples: RangeInclusive<u32>,
}

fn is_image(samples: &Samples, window: usize) -> bool {
    let ty = samples.frame_type(window).and_then(FrameType::as_values);
    ty.is_some_and(|ty| ty.shape().len() >= 2)
}

impl Count {
    fn add(&mut self, episode: &EpisodeSamples, images: &[usize]) -> Result<()> {
        let mut seen = HashSet::new();
        // Of a frame: the page that stores it, and how many frames of the page are decoded for it.
        let mut pages = HashMap::new();
        let mut used = HashMap::<(usize, u32), Used>::new();
        let mut plan = SampleFrames::default();
        let samples = episode.len().min(SAMPLES);
        for sample in 0..samples {
            episode.plan(sample, &mut plan)?;
            // By stream and page: frames decoded, and bytes of one.
            let mut touched = BTreeMap::<(usize, u32), (usize, f64)>::new();
            for &window in images {
                let (Some(stream), Some(frames)) =
                    (episode.stream(window), plan.windows.get(window))
                else {
                    continue;
                };
                let bytes = stream
                    .frame_type()
                    .as_values()
                    .map_or(0, |ty| ty.frame_bytes());
                for &frame in frames.frames.iter().filter(|&&frame| frame != NO_FRAME) {
                    let (position, frame) = stream.place_of(frame);
                    let (page, decoded) = match pages.get(&(position, frame)) {
                        Some(&known) => known,
                        None => {
                            let stored = stream.stored(position)?;
                            let slice = stored.pages(frame..frame.saturating_add(1)).next();
                            let Some(slice) = slice else {
                                continue;
                            };
                            // All frames of the page at once: its bytes may have to be read.
                            let costs = stored.decode_costs(&slice);
                            let costs = costs.unwrap_or_else(|_| (1..=slice.frames).collect());
                            let first = frame - u32::try_from(slice.range.start).unwrap_or(frame);
                            let frames = (first..).zip(&costs);
                            let known =
                                frames.map(|(at, &cost)| ((position, at), (slice.page, cost)));
                            pages.extend(known);
                            let first = Used {
                                bytes: (costs.len() * bytes) as f64,
                                count: 0,
                                samples: sample..=sample,
                            };
                            used.insert((position, slice.page), first);
                            (
                                slice.page,
                                costs.get(slice.range.start).copied().unwrap_or(1),
                            )
                        }
                    };
                    let entry = touched.entry((position, page)).or_default();
                    *entry = (entry.0.max(decoded), bytes as f64);
                    if seen.insert((position, frame)) {
                        self.different += bytes as f64;
                    }
                }
            }
            for (page, (frames, bytes)) in touched {
                self.decoded += frames as f64 * bytes;
                if let Some(used) = used.get_mut(&page) {
                    used.samples = *used.samples.start()..=sample;
                    used.count += 1;
                }
            }
        }
        self.samples += f64::from(samples);
        self.cuts += f64::from(samples.saturating_sub(1));
        for one in used.values() {
            self.stored += one.bytes;
            self.used += one.bytes * f64::from(one.count);
            self.twice += one.bytes * f64::from(one.samples.end() - one.samples.start());
        }
        Ok(())
    }
}
