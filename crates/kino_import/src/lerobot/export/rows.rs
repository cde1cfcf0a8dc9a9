//! Writes the frames of an episode into a row group of a data file, and computes statistics in the same pass.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use kino_codec::{Dtype, ValueType};
use kino_dataset::Stream;
use kino_parquet::{ColumnWriter, Writer};

use super::columns::{self, Column, ImageSize, Origin, in_table, in_videos};
use super::stats::{Channels, Stats, sampled};
use super::tasks::Tasks;
use super::{layout, remux};
use crate::error::{Result, invalid};
use crate::export::{
    Cameras, EpisodeOutline, FrameReader, Outline, StreamOutline, WritingPath, create_new,
    unwritable,
};
use crate::png;
use crate::video::{VideoError, VideoShape, Videos};

/// Writes the episodes of an export, in their order.
pub(super) struct Episodes<'a> {
    pub(super) outline: &'a Outline,
    pub(super) columns: &'a [Column],
    pub(super) tasks: &'a Tasks,
    /// Frames that are written so far.
    pub(super) frames: usize,
}

struct Frames<'a> {
    outline: &'a StreamOutline,
    stream: Stream,
}

impl Episodes<'_> {
    /// Writes an episode as one row group, and its videos to the paths from `video`; returns the statistics of its
    /// columns.
    pub(super) fn write(
        &mut self,
        number: usize,
        reader: &mut FrameReader<'_>,
        table: &mut Writer<File>,
        video: &dyn Fn(&str) -> PathBuf,
    ) -> Result<BTreeMap<String, Stats>> {
        let episode = &self.outline.episodes[number];
        let frames = self.frames..self.frames + episode.frames();
        self.frames = frames.end;
        let rate_hz = layout::rate_hz(self.outline);
        let mut found = BTreeMap::new();
        let mut group = table.group()?;
        for column in in_table(self.columns) {
            group.column(|out| -> Result<()> {
                let stats = if column.origin == Origin::Own {
                    self.write_own(out, &column.name, number, frames.clone())?
                } else {
                    write_stream(out, reader, column, &self.frames(episode, &column.name)?)?
                };
                found.extend(stats.map(|stats| (column.name.clone(), stats)));
                Ok(())
            })?;
        }
        group.finish()?;
        for column in in_videos(self.columns) {
            let (frames, path) = (self.frames(episode, &column.name)?, &video(&column.name));
            let stats = match (column.origin, &self.outline.cameras) {
                (Origin::Packets(coding), _) => {
                    remux::write(&frames.stream, coding, rate_hz, path)?;
                    stats_of_video(reader, &frames)?
                }
                (_, Cameras::Video(videos)) => {
                    let videos = videos.as_ref();
                    let film = Film {
                        videos,
                        path,
                        rate_hz,
                    };
                    film.write(reader, &frames)?
                }
                (_, Cameras::Stored | Cameras::Images) => None,
            };
            found.extend(stats.map(|stats| (column.name.clone(), stats)));
        }
        reader.next_episode()?;
        Ok(found)
    }

    fn frames<'e>(&self, episode: &'e EpisodeOutline, name: &str) -> Result<Frames<'e>> {
        let found = episode.streams.iter().find(|stream| stream.name == name);
        let found = found
            .ok_or_else(|| invalid(format!("episode `{}` has no stream `{name}`", episode.id)))?;
        let source = self.outline.dataset.find(&episode.id)?;
        Ok(Frames {
            outline: found,
            stream: source.stream(&found.source)?,
        })
    }

    /// Fills one of LeRobot's own columns.
    fn write_own(
        &self,
        out: &mut ColumnWriter<'_>,
        name: &str,
        number: usize,
        frames: Range<usize>,
    ) -> Result<Option<Stats>> {
        let rate_hz = layout::rate_hz(self.outline);
        let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX).to_le_bytes();
        let (count, mut dtype) = (frames.len(), Dtype::I64);
        let packed: Vec<u8> = match name {
            "timestamp" => {
                dtype = Dtype::F32;
                let times = (0..count).map(|frame| to_f32(frame as f64 / rate_hz));
                times.flat_map(f32::to_le_bytes).collect()
            }
            "frame_index" => (0..count).flat_map(whole).collect(),
            "episode_index" => whole(number).repeat(count),
            "index" => frames.flat_map(whole).collect(),
            _ => {
                let runs = &self.tasks.runs[number];
                let task = |frame| {
                    let run = runs.partition_point(|(start, _)| *start <= frame);
                    runs[run.saturating_sub(1)].1
                };
                (0..count).map(task).flat_map(whole).collect()
            }
        };
        out.numbers(&packed, &[])?;
        let ty = ValueType::new(dtype, &[]).map_err(|error| invalid(error.to_string()))?;
        Ok(Stats::of_numbers(&packed, &ty))
    }
}

/// Frames of video that are decoded together for statistics have at most about this many bytes.
const STATS_BYTES: usize = 64 << 20;

/// Statistics of a stream of video: frames of one page are decoded together.
fn stats_of_video(reader: &mut FrameReader<'_>, frames: &Frames<'_>) -> Result<Option<Stats>> {
    let Frames { outline, stream } = frames;
    let ty = outline.frame.as_values();
    let bytes = ty.map_or(1, |ty| ty.frame_bytes().max(1));
    let size = columns::image(outline).filter(|size| size.channels == 3);
    let mut wanted = sampled(stream.len()).into_iter().peekable();
    let mut channels = Channels::new();
    while let Some((size, first)) = size.zip(wanted.peek().copied()) {
        let end = stream
            .page_end(first)
            .min(first + (STATS_BYTES / bytes).max(1));
        let mut of_page = Vec::new();
        while let Some(frame) = wanted.next_if(|&frame| frame < end) {
            of_page.push(frame);
        }
        let last = of_page.last().map_or(first, |last| last + 1);
        let pixels = stream.read(first..last)?;
        for frame in of_page {
            let start = (frame - first) * bytes;
            channels.add(pixels.get(start..start + bytes).unwrap_or_default(), size);
        }
    }
    reader.add_bytes(outline.raw_bytes())?;
    Ok(channels.finish())
}

struct Film<'a> {
    videos: &'a dyn Videos,
    path: &'a Path,
    rate_hz: f64,
}

impl Film<'_> {
    fn write(&self, reader: &mut FrameReader<'_>, frames: &Frames<'_>) -> Result<Option<Stats>> {
        let fail = |error: VideoError| match error {
            VideoError::NoDecoder { what } => invalid(format!(
                "cameras cannot be written as video files: {what}; pip install 'kinograph[video]', or omit --cameras"
            )),
            error => unwritable(self.path, error),
        };
        let Frames { outline, stream } = frames;
        let Some(size) = columns::image(outline) else {
            return Ok(None);
        };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).writing(folder)?;
        }
        let shown = VideoShape {
            height: size.height,
            width: size.width,
            rate_hz: self.rate_hz,
        };
        create_new(self.path)?;
        let mut film = self.videos.create(self.path, shown).map_err(fail)?;
        let mut channels = Channels::new();
        let mut wanted = sampled(stream.len()).into_iter().peekable();
        let bytes = outline.frame.as_values().map_or(1, ValueType::frame_bytes);
        reader.each_block(stream, |frames, block| {
            for (frame, pixels) in frames.zip(block.chunks_exact(bytes.max(1))) {
                if wanted.next_if_eq(&frame).is_some() {
                    channels.add(pixels, size);
                }
            }
            film.push(block).map_err(fail)
        })?;
        film.finish().map_err(fail)?;
        self.check(outline.frames)?;
        Ok(channels.finish())
    }

    /// Checks that every frame exists at its expected time.
    fn check(&self, frames: usize) -> Result<()> {
        let fail = |what: String| unwritable(self.path, VideoError::Damaged { what });
        let video = self.videos.open(self.path);
        let video = video.writing(self.path)?;
        let times = &video.info().times_ns;
        if times.len() != frames {
            let what = format!("has {} frames, but {frames} were encoded", times.len());
            return Err(fail(what));
        }
        let is_off = |(frame, time): (usize, &i64)| {
            let expected = frame as f64 / self.rate_hz;
            (*time as f64 / 1e9 - expected).abs() > 0.25 / self.rate_hz
        };
        match times.iter().enumerate().find(|&at| is_off(at)) {
            Some((frame, _)) => Err(fail(format!("shows frame {frame} at an unexpected time"))),
            None => Ok(()),
        }
    }
}

fn write_stream(
    out: &mut ColumnWriter<'_>,
    reader: &mut FrameReader<'_>,
    column: &Column,
    frames: &Frames<'_>,
) -> Result<Option<Stats>> {
    let Frames { outline, stream } = frames;
    let Some(ty) = outline.frame.as_values() else {
        for text in reader.texts(stream)? {
            out.text(Some(&text))?;
        }
        return Ok(None);
    };
    if let Some(size) = columns::image(outline) {
        return write_images(out, reader, frames, ty, size);
    }
    let has_stats = column.stats_shape().is_some();
    let mut packed = Vec::new();
    reader.each_block(stream, |_, block| {
        if has_stats {
            packed.extend_from_slice(block);
        }
        Ok(out.numbers(block, &column.lists)?)
    })?;
    Ok(has_stats.then(|| Stats::of_numbers(&packed, ty)).flatten())
}

fn write_images(
    out: &mut ColumnWriter<'_>,
    reader: &mut FrameReader<'_>,
    frames: &Frames<'_>,
    ty: &ValueType,
    size: ImageSize,
) -> Result<Option<Stats>> {
    let Frames { outline, stream } = frames;
    let is_deep = ty.dtype() == Dtype::U16;
    let mut channels = Channels::new();
    let wanted = sampled(stream.len());
    if outline.is_jpeg
        && let Some(files) = reader.jpegs(outline, stream)?
    {
        out.images(files)?;
        for frame in wanted {
            channels.add(&stream.read(frame..frame + 1)?, size);
        }
        return Ok(channels.finish());
    }
    let mut wanted = wanted.into_iter().peekable();
    reader.each_block(stream, |frames, block| {
        let images: Vec<_> = block.chunks_exact(ty.frame_bytes().max(1)).collect();
        for (frame, pixels) in frames.zip(&images) {
            if !is_deep && wanted.next_if_eq(&frame).is_some() {
                channels.add(pixels, size);
            }
        }
        let files = png::encode_all(ty, &images);
        let files = files.map_err(|what| invalid(format!("stream `{}` {what}", outline.source)))?;
        Ok(out.images(files)?)
    })?;
    Ok(channels.finish())
}

/// The nearest float32, rounded like numpy.
fn to_f32(value: f64) -> f32 {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the column has single precision"
    )]
    let nearest = value as f32;
    nearest
}
