//! Copies a dataset page by page: nothing is encoded again, and nothing is linked in the copy.
//!
//! ```text
//! every episode ─▶ every stream: its pages, checked and decoded once ─▶ DatasetWriter ─▶ commit
//! ```
//!
//! Pages are bit for bit the same, whether they were in a shard or in a linked file. Episodes keep their order in the
//! table and, as far as the shards allow, on disk. A version is copied, not the history of the dataset.

use std::ops::ControlFlow;
use std::path::Path;

use kino_codec::FrameType;
use kino_format::{NONE, PageSlice};

use crate::commit::Committed;
use crate::dataset::Dataset;
use crate::episode::Episode;
use crate::error::{DatasetError, Result};
use crate::pages::{NewPage, Pages};
use crate::plan::Arrival;
use crate::stored_stream::StoredStream;
use crate::stream::Stream;
use crate::stream_info::{SharedFrames, StreamInfo, Times};
use crate::table::EpisodeRow;
use crate::writer::{DatasetWriter, EpisodeInfo, Start, WriterOptions};

/// Pages are read in runs of about this many bytes.
const RUN_BYTES: u64 = 8 << 20;

/// How far a copy has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// Episodes that are done, and all.
    pub episodes: (u64, u64),
    /// Bytes of decoded frames that are done, and all.
    pub bytes: (u64, u64),
}

/// A finished copy.
#[derive(Debug)]
pub struct Copied {
    /// The new version.
    pub committed: Committed,
    /// Episodes that an interrupted copy had already finished.
    pub resumed: u64,
}

/// Copies the open version of a dataset into the folder `target`; `None` if `progress` stopped it.
///
/// The plan of `options` has no effect. With [`Start::Resume`] an interrupted copy of the same version is continued.
pub fn copy(
    dataset: &Dataset,
    target: &Path,
    start: Start,
    mut options: WriterOptions,
    progress: &mut dyn FnMut(CopyProgress) -> ControlFlow<()>,
) -> Result<Option<Copied>> {
    let manifest = dataset.manifest();
    let mut attributes = manifest.attributes.clone();
    attributes.extend(std::mem::take(&mut options.attributes));
    options.attributes = attributes;
    let id = dataset.id().to_owned();
    options.settings.insert("copy_of".to_owned(), id);
    let mut writer = DatasetWriter::open(target, start, options)?;
    let resumed = writer.resumed().clone();
    let rows = dataset.table().rows()?;
    let mut at = CopyProgress {
        episodes: (0, rows.len() as u64),
        bytes: (0, rows.iter().map(|row| row.raw_bytes).sum()),
    };
    let mut passed = 0;
    for idx in on_disk(&rows) {
        let row = &rows[idx];
        if resumed.contains(&row.id) {
            passed += row.raw_bytes;
        } else {
            copy_episode(&dataset.episode(idx)?, row, &mut writer)?;
        }
        at.episodes.0 += 1;
        at.bytes.0 = (passed + writer.written_bytes()).min(at.bytes.1);
        if progress(at).is_break() {
            return Ok(None);
        }
    }
    while writer.write_next()? {}
    let version = manifest.version;
    let message = format!("copy version {version} of {}", dataset.path().display());
    let committed = writer.commit(&message)?;
    let resumed = resumed.len() as u64;
    Ok(Some(Copied { committed, resumed }))
}

/// The rows in the order of the shards, which is a random one on purpose.
fn on_disk(rows: &[EpisodeRow]) -> Vec<usize> {
    let mut order: Vec<_> = (0..rows.len()).collect();
    order.sort_by_key(|&idx| (rows[idx].shard, rows[idx].slot));
    order
}

fn copy_episode(episode: &Episode, row: &EpisodeRow, writer: &mut DatasetWriter) -> Result<()> {
    let mut copy = writer.episode(EpisodeInfo {
        id: row.id.clone(),
        position: Some(episode.row() as u64),
        splits: row.splits.clone(),
        task: row.task.clone(),
        success: row.success,
        licence: row.licence.clone(),
        consent: row.consent.clone(),
        source: row.source.clone(),
        source_hash: row.source_hash.clone(),
        protected: episode.read_protected()?,
        attributes: episode.read_attributes()?,
        labels: row.labels.clone(),
    })?;
    let names = episode.streams().map(|stream| stream.name.clone());
    let names: Vec<_> = names.collect();
    let mut order: Vec<_> = (0..names.len()).collect();
    // A stream comes after the one it shares frames with.
    order.sort_by_key(|&idx| episode.index().stream(idx).base != NONE);
    for idx in order {
        let stream = episode.stream(&names[idx])?;
        let stored = StoredStream::open(episode.clone(), idx)?;
        let info = stream_info(&stream, &stored, &names)?;
        copy.paged_stream(&info, &stored.schema().codec)?;
        let mut runs = runs(&stored).into_iter();
        runs.try_for_each(|run| copy.push_pages(read(&stored, &run)?))?;
    }
    copy.finish()
}

fn stream_info(stream: &Stream, stored: &StoredStream, names: &[String]) -> Result<StreamInfo> {
    let (record, schema) = (stored.record(), stored.schema());
    let base = (record.base != NONE).then(|| names.get(record.base as usize));
    Ok(StreamInfo {
        name: schema.name.clone(),
        kind: schema.kind,
        frame: stored.frame_type().clone(),
        frames: u64::from(record.frames),
        times: Times::Clock(stream.clock()?.clone()),
        arrival: Arrival::Values,
        shared: base.flatten().map(|base| SharedFrames {
            base: base.clone(),
            first: u64::from(record.base_first),
            count: u64::from(record.own_start),
        }),
    })
}

/// The pages of a stream, in runs that are read in one request.
fn runs(stored: &StoredStream) -> Vec<Vec<PageSlice>> {
    let mut runs: Vec<Vec<PageSlice>> = Vec::new();
    let mut bytes = 0;
    for page in stored.pages(stored.frames()) {
        bytes += u64::from(page.record.len);
        match runs.last_mut() {
            Some(run) if bytes <= RUN_BYTES => run.push(page),
            _ => {
                bytes = u64::from(page.record.len);
                runs.push(vec![page]);
            }
        }
    }
    runs
}

fn read(stored: &StoredStream, run: &[PageSlice]) -> Result<Pages, DatasetError> {
    let bytes = stored.fetch(run)?;
    let record = stored.record();
    let is_first = run.first().map(|page| page.record.first_frame) == Some(record.own_start);
    let mut pages = Pages {
        shared: stored.read_shared()?,
        error: (record.max_abs_error, record.sum_squared_error),
        ..Pages::default()
    };
    if is_first && *stored.frame_type() == FrameType::Text {
        pages.text_bytes = record.raw_bytes;
    }
    for page in run {
        pages.pages.push(NewPage {
            frames: u32::try_from(page.frames).unwrap_or(u32::MAX),
            bytes: Some(stored.page_bytes(run, page, &bytes)?.to_vec()),
            pieces: Vec::new(),
        });
    }
    Ok(pages)
}
