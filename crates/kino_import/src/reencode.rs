//! JPEG files and video that a plan asks to store in another way: decoded, and encoded again.
//!
//! ```text
//! no rule, no quality               stored as it is
//! quality, or a rule with a bound   JPEG files: decoded if that makes them smaller; video: decoded
//! a rule that names a codec         decoded; a note if JPEG files get larger
//! a rule that resizes               decoded, unless they have that size; the same note
//! ```
//!
//! What was compressed with loss before loses a second time, so the dataset records it
//! ([`Generation`](kino_dataset::Generation)).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kino_codec::{Frames, JPEG_FILES, decode_jpeg_files};
use kino_dataset::{Arrival, ByteSize, Choice, DatasetWriter, Generation, Plan};

use crate::defect::Defect;
use crate::error::{ImportError, Result};
use crate::fit::Fitted;
use crate::preview::{arrival, encoded_bytes};
use crate::source::{EpisodeSpec, FrameBuf, ReadFrames, StreamSpec, Wanted};

/// At most about this many bytes of frames are tried.
const TRIED_BYTES: u64 = 16 << 20;

/// What a plan changes about streams that a source has as files.
#[derive(Debug, Default)]
pub(crate) struct Reencoded {
    /// What was decided, where that is not what the plan says or makes a stream larger.
    pub(crate) notes: Vec<Defect>,
    /// The streams that are decoded, with the codec that would have stored them as they are.
    pub(crate) generations: BTreeMap<String, Generation>,
}

impl Reencoded {
    /// Tells the writer which streams were lossy before.
    pub(crate) fn tell(&self, writer: &mut DatasetWriter) {
        for (stream, generation) in &self.generations {
            writer.add_generations(stream, vec![generation.clone()]);
        }
    }
}

/// Has streams decoded that a source has as files, where the plan asks for another codec.
pub(crate) fn apply_plan(source: &mut Fitted<'_>, plan: &Plan) -> Result<Reencoded> {
    let mut found = Reencoded::default();
    let mut is_decoded: BTreeMap<String, bool> = BTreeMap::new();
    for episode in source.episodes.iter() {
        for (idx, stream) in episode.streams.iter().enumerate() {
            if is_decoded.contains_key(&stream.name) {
                continue;
            }
            let files = arrival(stream);
            let wanted = plan.files_arrival(&stream.name, stream.kind, &stream.frame, files);
            let is_changed = files != Arrival::Values && wanted == Arrival::Values;
            let is_decoded_here = match files {
                Arrival::Jpeg if is_changed => {
                    let (is_smaller, note) = try_first(episode, idx, plan)?;
                    found.notes.extend(note);
                    is_smaller
                }
                _ => is_changed,
            };
            if is_decoded_here {
                let codec = carrying_codec(stream).unwrap_or_default();
                let generation = Generation::of_files(&codec);
                found.generations.insert(stream.name.clone(), generation);
            }
            is_decoded.insert(stream.name.clone(), is_decoded_here);
        }
    }
    if is_decoded.values().any(|is_decoded| *is_decoded) {
        for episode in source.episodes.to_mut() {
            for stream in &mut episode.streams {
                if stream.carried && is_decoded.get(&stream.name) == Some(&true) {
                    decode(stream);
                }
            }
        }
    }
    Ok(found)
}

/// The codec that would store a stream as it is in the source; `None` if it comes as values.
pub(crate) fn carrying_codec(stream: &StreamSpec) -> Option<String> {
    match arrival(stream) {
        Arrival::Values => None,
        Arrival::Jpeg => Some(JPEG_FILES.to_owned()),
        Arrival::Video(coding) => Some(coding.codec()),
    }
}

/// Lets a stream store all its frames if the plan gives it another size than the one that it shares frames with.
pub(crate) fn unshare_resized(source: &mut Fitted<'_>, plan: &Plan) {
    let stored = |one: &StreamSpec| plan.stored_frame(&one.name, one.kind, &one.frame);
    for idx in 0..source.episodes.len() {
        for at in 0..source.episodes[idx].streams.len() {
            let streams = &source.episodes[idx].streams;
            let base = streams[at].shift_of.and_then(|base| streams.get(base));
            if base.is_some_and(|base| stored(base) != stored(&streams[at])) {
                source.episodes.to_mut()[idx].streams[at].shift_of = None;
            }
        }
    }
}

/// Has the frames of a stream delivered as pixels.
pub(crate) fn decode(stream: &mut StreamSpec) {
    // Whoever has packets of video can deliver it either way.
    if stream.video.is_none() {
        let files = stream.clone();
        stream.reader = Arc::new(DecodedFiles { files });
    }
    stream.carried = false;
}

/// Whether JPEG files are to be encoded again, and what to tell about it: their first frames are encoded and compared.
fn try_first(episode: &EpisodeSpec, idx: usize, plan: &Plan) -> Result<(bool, Option<Defect>)> {
    let spec = &episode.streams[idx];
    let mut choice = plan.choose(&spec.name, spec.kind, &spec.frame, Arrival::Values)?;
    let most = (TRIED_BYTES / spec.frame_bytes().max(1)).max(1);
    let tried = choice.trial_frames(&spec.frame).unwrap_or(64) as u64;
    let frames = spec.frames.min(tried.min(most));
    let FrameBuf::Bytes(files) = episode.read(idx, 0..frames)? else {
        return Ok((true, None));
    };
    let values = pixels(spec, &files).map_err(|what| damaged(episode, spec, what))?;
    let after = size_after(spec, &values, &mut choice);
    let before: usize = files.iter().map(Vec::len).sum();
    let Some(after) = after.filter(|_| !files.is_empty()) else {
        return Ok((true, None));
    };
    if after < before as u64 {
        return Ok((true, None));
    }
    let codec = choice.codec.spec();
    let sizes = format!(
        "the first {} JPEG files take {} as they are and {} as `{codec}`",
        files.len(),
        ByteSize::new(before as u64),
        ByteSize::new(after)
    );
    let (is_decoded, what) = if choice.resize().is_some() {
        let what = format!(
            "is resized and encoded again as the plan says, which makes it larger: {sizes}; allow a loss with `codec = \"jpeg:q=90\"`, \
             or remove `resize` to store the files as they are"
        );
        (true, what)
    } else if choice.is_named() {
        let what = format!(
            "is encoded again as the plan says, which makes it larger: {sizes}; remove `codec` from the rule to store the files as they are"
        );
        (true, what)
    } else {
        let what = format!("is stored as it is, because that is no larger: {sizes}");
        (false, what)
    };
    let place = format!("stream `{}`", spec.name.escape_debug());
    Ok((is_decoded, Some(Defect::noted(place, what))))
}

/// What these frames take with the codec that the stream gets.
fn size_after(spec: &StreamSpec, values: &[u8], choice: &mut Choice) -> Option<u64> {
    choice.settle_values(&spec.frame, values).ok()?;
    let values = choice.to_stored(values).ok()?;
    let frame = choice.stored_frame(&spec.frame);
    encoded_bytes(&Frames::values(&frame, &values).ok()?, choice)
}

/// A stream of JPEG files, delivered as pixels.
#[derive(Debug)]
struct DecodedFiles {
    /// The stream as the source has it.
    files: StreamSpec,
}

impl ReadFrames for DecodedFiles {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let Wanted {
            episode,
            stream,
            frames,
        } = wanted;
        let (mut out, mut start) = (Vec::new(), frames.start);
        // A source may return fewer files than requested, but at least one.
        while start < frames.end {
            let files = self.files.reader.read(Wanted {
                episode,
                stream: &self.files,
                frames: start..frames.end,
            })?;
            let files = match files {
                FrameBuf::Bytes(files) if !files.is_empty() => files,
                other => return Ok(other),
            };
            start += files.len() as u64;
            let values = pixels(&self.files, &files);
            out.extend(values.map_err(|what| damaged(episode, stream, what))?);
        }
        Ok(FrameBuf::Values(out))
    }
}

/// The pixels of JPEG files, packed.
fn pixels(stream: &StreamSpec, files: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let slices: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    decode_jpeg_files(&stream.frame, &slices).map_err(|error| error.to_string())
}

fn damaged(episode: &EpisodeSpec, stream: &StreamSpec, what: String) -> ImportError {
    ImportError::corrupt(Path::new(&episode.object), &stream.name, what)
}
