//! A dry run of a pack: which episodes, which codecs, roughly how many bytes.

use std::collections::BTreeMap;

use kino_codec::{Encoded, FrameType, Frames, Scratch};
use kino_dataset::{Arrival, Choice, Plan, Trial, variant_name};

use crate::defect::{Defect, OnDefect};
use crate::error::{ImportError, Result};
use crate::fit::{Fitted, Target, fit};
use crate::needless_loss;
use crate::pack::wanted;
use crate::reencode::apply_plan;
use crate::shuffle::shuffled;
use crate::source::{EpisodeSpec, FrameBuf, Source, SourceInfo, StreamSpec};
use crate::source_file::SourceFile;
use crate::survey::{Looking, look};
use crate::variants::add_variants;

/// A stream is estimated from at most this many bytes of frames, and from at least one frame.
const SAMPLE_BYTES: u64 = 8 << 20;

/// What a pack would do.
#[derive(Debug)]
pub struct Preview {
    /// Ids of the episodes that would be packed, in source order.
    pub episodes: Vec<String>,
    /// The streams, by name.
    pub streams: Vec<StreamPreview>,
    /// Defects of the source, and what would be done about each.
    pub defects: Vec<Defect>,
}

/// What a pack would do with one stream.
#[derive(Debug)]
pub struct StreamPreview {
    /// The stream as in the first episode that is written with it.
    pub spec: StreamSpec,
    /// Codec and page size.
    pub choice: Choice,
    /// How many episodes have it.
    pub episodes: u64,
    /// Frames in all episodes.
    pub frames: u64,
    /// Decoded bytes of all frames as they are recorded; 0 for text.
    pub raw_bytes: u64,
    /// Estimated stored bytes; `None` if nothing could be encoded.
    pub estimated_bytes: Option<u64>,
    /// How many frames the estimate is based on.
    pub sampled_frames: u64,
    /// The codecs that were tried on its first frames, if the plan left the choice to them.
    pub trial: Option<Trial>,
}

impl StreamPreview {
    /// The type with which its frames are stored.
    pub fn stored_frame(&self) -> FrameType {
        self.choice.stored_frame(&self.spec.frame)
    }
}

/// Previews a pack with this seed. Defects that the policy refuses are not an error here: everything is shown and the
/// defects are listed.
pub fn preview(
    source: &Source,
    plan: &Plan,
    seed: u64,
    on_defect: OnDefect,
    threads: usize,
) -> Result<Preview> {
    let mut fitted = fit(source, &Target::default().with_plan(plan))?;
    let mut reencoded = apply_plan(&mut fitted, plan)?;
    let looked = look(&mut fitted, &Looking::at_all(threads), &mut |_| Ok(()))?;
    let mut defects = match on_defect.judge(looked.into_defects()) {
        Ok(defects) | Err(ImportError::Defects { defects }) => defects,
        Err(error) => return Err(error),
    };
    add_variants(&mut fitted, plan, &mut reencoded)?;
    let order = shuffled(fitted.episodes.len(), seed);
    let mut episodes = wanted(&fitted, &defects, &order);
    // In the order of writing: the first episode that has a stream decides its codec.
    let streams = streams(&fitted, plan, &episodes)?;
    defects.extend(streams.iter().filter_map(|stream| {
        let what = needless_loss::describe(stream.trial.as_ref()?)?;
        let name = stream.spec.name.escape_debug();
        Some(Defect::noted(format!("stream `{name}`"), what))
    }));
    defects.extend(reencoded.notes);
    episodes.sort_unstable();
    let id = |&episode: &usize| fitted.ids[episode].clone();
    Ok(Preview {
        episodes: episodes.iter().map(id).collect(),
        streams,
        defects,
    })
}

fn streams(source: &Fitted<'_>, plan: &Plan, episodes: &[usize]) -> Result<Vec<StreamPreview>> {
    let mut found: BTreeMap<&str, StreamPreview> = BTreeMap::new();
    for episode in episodes.iter().map(|&idx| &source.episodes[idx]) {
        for (idx, stream) in episode.streams.iter().enumerate() {
            let raw_bytes = stream.bytes();
            if let Some(known) = found.get_mut(stream.name.as_str()) {
                known.episodes += 1;
                known.frames += stream.frames;
                known.raw_bytes = known.raw_bytes.saturating_add(raw_bytes);
                continue;
            }
            let mut choice = choose(plan, stream)?;
            let (sample, trial) = try_first(episode, idx, &mut choice).unwrap_or_default();
            let new = StreamPreview {
                spec: stream.clone(),
                episodes: 1,
                frames: stream.frames,
                raw_bytes,
                // Holds the sample's bytes until the estimate below.
                estimated_bytes: sample.map(|(_, bytes)| bytes),
                sampled_frames: sample.map_or(0, |(frames, _)| frames),
                choice,
                trial,
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

/// The plan's choice for a stream.
fn choose(plan: &Plan, stream: &StreamSpec) -> Result<Choice> {
    let (kind, frame) = (stream.kind, &stream.frame);
    let chosen = match &stream.variant_of {
        Some(base) => {
            let variant = variant_name(&stream.name, base).unwrap_or_default();
            plan.choose_variant(base, variant, kind, frame)
        }
        None => plan.choose(&stream.name, kind, frame, arrival(stream)),
    };
    Ok(chosen?)
}

/// How the frames of a stream arrive at the writer.
pub(crate) fn arrival(stream: &StreamSpec) -> Arrival {
    match (stream.carried, stream.video) {
        (true, Some(coding)) => Arrival::Video(coding),
        (true, None) => Arrival::Jpeg,
        (false, _) => Arrival::Values,
    }
}

/// How many frames were encoded, and their encoded bytes.
type Sample = (u64, u64);

/// Chooses the codec by the first frames of a stream, as a pack does, and encodes some.
fn try_first(
    episode: &EpisodeSpec,
    stream: usize,
    choice: &mut Choice,
) -> Option<(Option<Sample>, Option<Trial>)> {
    let spec = &episode.streams[stream];
    let most = (SAMPLE_BYTES / spec.frame_bytes().max(1)).max(1);
    if choice.codec.has_own_pages() {
        return Some((first_page(episode, stream), None));
    }
    let tried = choice.trial_frames(&spec.frame);
    let tried = tried.map(|frames| spec.frames.min(frames as u64));
    let frames = spec.frames.min(most.max(tried.unwrap_or(0)));
    if frames == 0 {
        return None;
    }
    let block = episode.read(stream, 0..frames).ok()?;
    let (slices, stored): (Vec<&[u8]>, _);
    let frame = choice.stored_frame(&spec.frame);
    let mut trial = None;
    let (count, values) = match &block {
        FrameBuf::Values(values) => {
            if let Some(tried) = tried {
                let len = usize::try_from(tried * spec.frame_bytes()).ok()?;
                trial = choice.settle_values(&spec.frame, values.get(..len)?).ok()?;
            }
            stored = choice.to_stored(values).ok()?;
            (frames, Frames::values(&frame, &stored).ok()?)
        }
        FrameBuf::Bytes(files) => {
            slices = files.iter().map(Vec::as_slice).collect();
            (files.len() as u64, Frames::bytes(&spec.frame, &slices))
        }
    };
    let sample = encoded_bytes(&values, choice).map(|bytes| (count, bytes));
    Some((sample, trial))
}

/// The frames and bytes of the first page of a stream that comes in pages.
fn first_page(episode: &EpisodeSpec, stream: usize) -> Option<Sample> {
    let spec = episode.streams.get(stream)?;
    let most = (1 << 30) / spec.frame_bytes().max(1);
    let frames = spec.frames.min(most);
    let FrameBuf::Bytes(frames) = episode.read(stream, 0..frames).ok()? else {
        return None;
    };
    let (page, more) = frames.split_first()?;
    let more = more.iter().take_while(|frame| frame.is_empty());
    Some((1 + more.count() as u64, page.len() as u64))
}

/// The size of these frames; `None` if they cannot be encoded.
pub(crate) fn encoded_bytes(frames: &Frames<'_>, choice: &Choice) -> Option<u64> {
    let (mut encoded, mut scratch) = (Encoded::default(), Scratch::new());
    let codec = &choice.codec;
    let made = codec.encode(frames, choice.page_frames, &mut encoded, &mut scratch);
    made.ok()?;
    let pages: usize = encoded.pages.iter().map(|page| page.bytes.len()).sum();
    Some((pages + encoded.shared.len()) as u64)
}

/// The bytes of a source's files on disk.
pub(crate) fn disk_bytes(info: &SourceInfo) -> u64 {
    let files = info.files.iter().map(SourceFile::read_disk_bytes);
    files.fold(0, u64::saturating_add)
}
