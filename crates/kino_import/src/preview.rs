//! What a pack would do, without doing it: which episodes, which codecs, about how many bytes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kino_codec::{Encoded, Frames, Scratch};
use kino_dataset::{Arrival, Choice, Plan};

use crate::defect::{Defect, OnDefect};
use crate::error::{ImportError, Result, invalid};
use crate::fit::{Fitted, Target, fit};
use crate::pack::{judge, wanted};
use crate::source::{FrameBuf, Source, SourceInfo, StreamPlan};
use crate::stream_order::frame_bytes;
use crate::survey::look;

/// A stream is estimated from no more bytes of frames than this, and from one frame at least.
const SAMPLE_BYTES: u64 = 8 << 20;

/// What a pack would do.
#[derive(Debug)]
pub struct Preview {
    /// The episodes that would be packed, by id, in the order of the source.
    pub episodes: Vec<String>,
    /// What would become of each stream, by name.
    pub streams: Vec<StreamPreview>,
    /// What is wrong with the source, and what would be done about it.
    pub defects: Vec<Defect>,
}

/// What would become of a stream.
#[derive(Debug)]
pub struct StreamPreview {
    /// The stream as the first episode has it that has one.
    pub plan: StreamPlan,
    /// Codec and page size.
    pub choice: Choice,
    /// In how many episodes it is.
    pub episodes: u64,
    /// Frames of all episodes.
    pub frames: u64,
    /// Bytes of all frames when decoded; none of text.
    pub raw_bytes: u64,
    /// About how many bytes they become; `None` where nothing could be encoded.
    pub estimated_bytes: Option<u64>,
    /// From how many frames that is estimated.
    pub sampled_frames: u64,
}

/// Looks at what a pack would do with a source. A source with defects that the policy refuses is no error here: all of it
/// is shown, and the defects are listed.
pub fn preview(
    source: &dyn Source,
    plan: &Plan,
    on_defect: OnDefect,
    threads: usize,
) -> Result<Preview> {
    check_quality(source, plan)?;
    let fitted = fit(source, &Target::default())?;
    let found = look(&fitted, threads, &mut || ControlFlow::Continue(()))?;
    let defects = match judge(found, on_defect) {
        Ok(defects) | Err(ImportError::Defects { defects }) => defects,
        Err(error) => return Err(error),
    };
    let mut episodes = wanted(&fitted, &defects, 0);
    episodes.sort_unstable();
    let streams = streams(&fitted, plan, &episodes)?;
    let id = |&episode: &usize| fitted.id(episode).to_owned();
    Ok(Preview {
        episodes: episodes.iter().map(id).collect(),
        streams,
        defects,
    })
}

fn streams(source: &Fitted<'_>, plan: &Plan, episodes: &[usize]) -> Result<Vec<StreamPreview>> {
    let mut found: BTreeMap<&str, StreamPreview> = BTreeMap::new();
    for &episode in episodes {
        for (idx, stream) in source.episodes()[episode].streams.iter().enumerate() {
            let raw_bytes = stream.frames.saturating_mul(frame_bytes(stream));
            if let Some(known) = found.get_mut(stream.name.as_str()) {
                known.episodes += 1;
                known.frames += stream.frames;
                known.raw_bytes = known.raw_bytes.saturating_add(raw_bytes);
                continue;
            }
            let choice = plan.choose(&stream.name, stream.kind, &stream.frame, arrival(stream))?;
            let sample = sample(source, (episode, idx), &choice);
            let new = StreamPreview {
                plan: stream.clone(),
                episodes: 1,
                frames: stream.frames,
                raw_bytes,
                // For the moment, the bytes of the sample.
                estimated_bytes: sample.map(|(_, bytes)| bytes),
                sampled_frames: sample.map_or(0, |(frames, _)| frames),
                choice,
            };
            found.insert(&stream.name, new);
        }
    }
    let mut streams: Vec<_> = found.into_values().collect();
    for stream in &mut streams {
        let per_frame = |bytes: u64| {
            let bytes = u128::from(bytes) * u128::from(stream.frames);
            u64::try_from(bytes / u128::from(stream.sampled_frames.max(1))).unwrap_or(u64::MAX)
        };
        stream.estimated_bytes = stream.estimated_bytes.map(per_frame);
    }
    Ok(streams)
}

/// How frames of a stream arrive at the writer.
pub(crate) fn arrival(stream: &StreamPlan) -> Arrival {
    match stream.carried {
        true => Arrival::Jpeg,
        false => Arrival::Values,
    }
}

/// Encodes the first frames of a stream: how many, and into how many bytes.
fn sample(
    source: &dyn Source,
    (episode, stream): (usize, usize),
    choice: &Choice,
) -> Option<(u64, u64)> {
    let plan = &source.episodes()[episode].streams[stream];
    let most = SAMPLE_BYTES / frame_bytes(plan).max(1);
    let frames = plan.frames.min(most.max(1));
    if frames == 0 {
        return None;
    }
    let mut block = FrameBuf::default();
    source.read(episode, stream, 0..frames, &mut block).ok()?;
    let slices: Vec<&[u8]>;
    let (count, values) = match &block {
        FrameBuf::Values(values) => (frames, Frames::values(&plan.frame, values).ok()?),
        FrameBuf::Bytes(files) => {
            slices = files.iter().map(Vec::as_slice).collect();
            (files.len() as u64, Frames::bytes(&plan.frame, &slices))
        }
    };
    let mut encoded = Encoded::default();
    let made = choice.codec.encode(
        &values,
        choice.page_frames,
        &mut encoded,
        &mut Scratch::new(),
    );
    made.ok()?;
    let pages: usize = encoded.pages.iter().map(|page| page.bytes.len()).sum();
    Some((count, (pages + encoded.shared.len()) as u64))
}

/// The bytes of a source's files on disk.
pub(crate) fn disk_bytes(info: &SourceInfo) -> u64 {
    let files = info.files.iter().map(crate::SourceFile::read_disk_bytes);
    files.fold(0, u64::saturating_add)
}

/// Refuses a JPEG quality for a source whose images are JPEG files already: they are stored unchanged.
pub(crate) fn check_quality(source: &dyn Source, plan: &Plan) -> Result<()> {
    let Some(quality) = plan.quality else {
        return Ok(());
    };
    let is_image = |stream: &&StreamPlan| stream.kind == kino_dataset::Kind::Image;
    let streams = source.episodes().iter().flat_map(|one| &one.streams);
    let mut images = streams.filter(is_image);
    match images.clone().next() {
        Some(first) if images.all(|stream| stream.carried) => Err(invalid(format!(
            "quality {quality} cannot be applied: the images of the source are JPEG files already (stream `{}`), \
             and are stored unchanged; remove `--quality` (in Python quality=)",
            first.name
        ))),
        _ => Ok(()),
    }
}
