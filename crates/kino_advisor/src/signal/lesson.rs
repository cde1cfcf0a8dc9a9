//! What a network learns features from: episodes that are set aside, so that no fold has seen them.
//!
//! ```text
//! episodes, shuffled   set aside: frames, vectors, targets ──▶ network.rs │ the others: folds, as with random features
//! ```

use std::time::Instant;

use kino_dataset::{Episode, Size};

use super::columns::columns;
use super::encoder::Encoder;
use super::gather::{Gathered, Lane, anchors_of};
use super::layout::Role;
use super::network::SharedNetwork;
use super::sample::{image_shape, least_episodes};
use super::{ProbeHost, ProbeOptions};
use crate::error::{Result, invalid};

/// One in so many episodes is set aside.
const SHARE: usize = 3;

/// Frames of an episode, at most and at least.
const MOST_FRAMES: usize = 100;
const LEAST_FRAMES: usize = 5;

/// Images of all frames take about this many bytes.
const MOST_BYTES: usize = 128 << 20;

/// Raw frames, and what a policy would have to predict from them.
#[derive(Debug, Clone)]
pub struct Lesson {
    /// The images of every camera.
    pub cameras: Vec<LessonCamera>,
    /// Frames.
    pub rows: usize,
    /// The other inputs, frame by frame, in standard deviations.
    pub vectors: Vec<f32>,
    /// What has to be predicted, frame by frame, in standard deviations.
    pub targets: Vec<f32>,
    /// Networks to train, each from another start.
    pub sets: usize,
    /// What random numbers start from.
    pub seed: u64,
    /// Seconds that it may take.
    pub seconds: f64,
}

/// The images of a camera.
#[derive(Debug, Clone)]
pub struct LessonCamera {
    /// The stream.
    pub stream: String,
    /// Rows and columns of an image.
    pub size: Size,
    /// Channels of an image.
    pub channels: usize,
    /// Features of an image, in each set.
    pub width: usize,
    /// Packed images, one per frame.
    pub frames: Vec<u8>,
}

/// What was spent on features.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spent {
    /// Episodes that were set aside.
    pub(super) episodes: usize,
    pub(super) seconds: f64,
}

/// Lets the network learn from a third of the episodes, which are taken out of `order`; nothing with random features.
pub(super) fn learn(
    order: &mut Vec<Episode>,
    (lanes, anchor): (&[Lane], usize),
    (options, network): (&ProbeOptions, Option<&SharedNetwork>),
    host: &mut dyn ProbeHost,
) -> Result<Spent> {
    let has_images = lanes.iter().any(|lane| lane.source.is_camera());
    let Some(network) = network.filter(|_| has_images) else {
        return Ok(Spent::default());
    };
    let began = Instant::now();
    let rest = order.split_off(order.len() / SHARE);
    let aside = std::mem::replace(order, rest);
    if order.len() < least_episodes(options) || aside.is_empty() {
        return Err(invalid(format!(
            "{} episodes are too few to set {} aside for a network; use random features",
            order.len() + aside.len(),
            aside.len().max(1)
        )));
    }
    let seconds = options.seconds / 2.0;
    host.begins(&format!(
        "a network learns features from {} episodes that are set aside: at most {seconds:.0} s of {:.0} s",
        aside.len(),
        options.seconds
    ));
    let mut lesson = lesson(&aside, (lanes, anchor), options, host)?;
    lesson.seconds = (seconds - began.elapsed().as_secs_f64()).max(0.0);
    host.begins(&network.lock().prepare(lesson)?);
    for _ in 0..options.seeds {
        host.look_up()?;
        network.lock().learn()?;
    }
    Ok(Spent {
        episodes: aside.len(),
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Reads raw frames of the episodes.
fn lesson(
    episodes: &[Episode],
    (lanes, anchor): (&[Lane], usize),
    options: &ProbeOptions,
    host: &mut dyn ProbeHost,
) -> Result<Lesson> {
    let mut bytes = 0;
    let mut raw = Vec::new();
    for lane in lanes {
        let mut kept = None;
        if lane.source.is_camera() {
            let (size, channels) = image_shape(&lane.source)?;
            bytes += size.pixels() * channels;
            kept = Some(Encoder::Kept(Vec::new()));
        }
        raw.push(Lane::new(lane.source.clone(), Vec::new(), kept, 1));
    }
    let frames = MOST_BYTES / (episodes.len() * bytes).max(1);
    let frames = frames.clamp(LEAST_FRAMES, MOST_FRAMES);
    let mut gathered = Gathered::default();
    for episode in episodes {
        host.look_up()?;
        let anchors = anchors_of(episode, &raw[anchor].source.name, frames)?;
        gathered.add((episode, &anchors), &mut raw, (anchor, &[]), host)?;
    }
    let rows = gathered.near.len();
    let mut cameras = Vec::new();
    let values = |role| values(&raw, role, rows);
    let (vectors, targets) = (values(Role::Vector), values(Role::Target));
    for (kept, lane) in raw.into_iter().zip(lanes) {
        if let (Some(Encoder::Kept(frames)), Some(encoder)) = (kept.encoder, &lane.encoder) {
            let (size, channels) = image_shape(&lane.source)?;
            cameras.push(LessonCamera {
                stream: lane.source.name.clone(),
                size,
                channels,
                width: encoder.width(),
                frames,
            });
        }
    }
    Ok(Lesson {
        cameras,
        rows,
        vectors,
        targets,
        sets: options.seeds,
        seed: options.seed,
        seconds: 0.0,
    })
}

/// What varies in the streams with this role, frame by frame.
fn values(lanes: &[Lane], role: Role, rows: usize) -> Vec<f32> {
    let mut found = Vec::new();
    for (number, lane) in lanes.iter().enumerate() {
        for (one, used) in lane.source.uses.iter().enumerate() {
            if used.role == role {
                found.extend(columns(number, one, &lane.tables[0][one]));
            }
        }
    }
    let value = |row: usize, column: &super::columns::Column| {
        let table = &lanes[column.lane].tables[0][column.one];
        let value = table.values[row * table.cols + column.column];
        super::ridge::to_f32(column.scaled(f64::from(value)))
    };
    (0..rows)
        .flat_map(|row| found.iter().map(move |column| value(row, column)))
        .collect()
}
