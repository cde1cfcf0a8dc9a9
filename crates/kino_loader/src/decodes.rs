//! How often a frame is decoded per epoch if all samples are shuffled and no decoded frame is kept.
//!
//! ```text
//! samples      0: frames 0 1      1: frames 1 2      2: frames 2 3 …       each frame in two samples: 2
//! pages        | 0 1 2 3 4 5 6 7 | 8 … |                                   frame 5 of a group is decoded after 0 to 4
//! ```
//!
//! It follows from the windows and the pages, so a few episodes show it. One frame per sample in pages of one frame is
//! decoded once in any order; overlapping windows and groups of frames are why decoded frames are kept.

use std::collections::{BTreeMap, HashMap, HashSet};

use kino_codec::FrameType;
use kino_dataset::{EpisodeSamples, NO_FRAME, Result, SampleFrames, Samples};

/// Looked at: this many episodes, spread over all, and this many samples in a row of each.
const EPISODES: usize = 4;
const SAMPLES: u32 = 512;

/// Decodes and different frames, weighted by their bytes.
#[derive(Debug, Default)]
struct Decodes {
    decoded: f64,
    different: f64,
}

/// How often a frame of an image or depth stream is decoded per epoch under a global shuffle, if no decoded frame is kept;
/// 1 if none is requested.
pub fn decodes_per_frame(samples: &Samples) -> Result<f64> {
    let requested = samples.request().windows.len();
    let images: Vec<usize> = (0..requested)
        .filter(|&window| is_image(samples, window))
        .collect();
    if images.is_empty() {
        return Ok(1.0);
    }
    let counts = samples.counts();
    let filled: Vec<usize> = (0..counts.len()).filter(|&at| counts[at] > 0).collect();
    let shown = filled.len().min(EPISODES);
    let mut decodes = Decodes::default();
    for nth in 0..shown {
        // One that cannot be opened is reported when its turn comes in training.
        if let Ok(episode) = samples.opened(filled[nth * filled.len() / shown]) {
            decodes.add(&episode, &images)?;
        }
    }
    Ok(if decodes.different > 0.0 {
        decodes.decoded / decodes.different
    } else {
        1.0
    })
}

fn is_image(samples: &Samples, window: usize) -> bool {
    let ty = samples.frame_type(window).and_then(FrameType::as_values);
    ty.is_some_and(|ty| ty.shape().len() >= 2)
}

impl Decodes {
    fn add(&mut self, episode: &EpisodeSamples, images: &[usize]) -> Result<()> {
        let mut seen = HashSet::new();
        // Of a frame: the page that stores it, and how many frames of the page are decoded for it.
        let mut pages = HashMap::new();
        let mut plan = SampleFrames::default();
        for sample in 0..episode.len().min(SAMPLES) {
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
            self.decoded += touched
                .values()
                .map(|(frames, bytes)| *frames as f64 * bytes)
                .sum::<f64>();
        }
        Ok(())
    }
}
