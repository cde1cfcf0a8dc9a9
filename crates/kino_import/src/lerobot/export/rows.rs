//! Writes the frames of an episode into a row group of a data file, and computes statistics in the same pass.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kino_codec::{Dtype, ValueType};
use kino_dataset::Stream;

use super::columns::{self, Column, Origin, in_table, in_videos};
use super::stats::{Channels, Stats, sampled};
use super::table::{OutColumn, OutTable};
use crate::error::{ImportError, Result, invalid};
use crate::export::{
    Cameras, EpisodeOutline, FrameReader, Outline, StreamOutline, create_new, unwritable,
};
use crate::png;
use crate::video::{VideoError, VideoShape, Videos};

/// Where an episode is in the export.
pub(super) struct Place<'a> {
    /// Its number.
    pub(super) episode: usize,
    /// The number of its first frame among all.
    pub(super) first: usize,
    /// Where each task begins, and its number.
    pub(super) tasks: &'a [(usize, usize)],
    pub(super) rate_hz: f64,
}

/// Writes an episode as one row group and returns the statistics of its columns.
pub(super) fn write(
    outline: &Outline,
    reader: &mut FrameReader<'_>,
    columns: &[Column],
    place: &Place<'_>,
    table: &mut OutTable,
) -> Result<BTreeMap<String, Stats>> {
    let episode = &outline.episodes[place.episode];
    let source = outline.dataset.find(&episode.id)?;
    let mut found = BTreeMap::new();
    let mut group = table.group()?;
    for column in in_table(columns) {
        group.column(|out| {
            let stats = match column.origin == Origin::Own {
                false => {
                    let stream = stream(episode, &column.name)?;
                    let source = source.stream(&stream.source)?;
                    write_stream(out, reader, column, (stream, &source))?
                }
                true => write_own(out, &column.name, place, episode.frames())?,
            };
            found.extend(stats.map(|stats| (column.name.clone(), stats)));
            Ok(())
        })?;
    }
    group.finish()?;
    Ok(found)
}

/// Writes the video files of an episode to the paths from `path_of`, and adds their statistics.
pub(super) fn write_videos(
    outline: &Outline,
    reader: &mut FrameReader<'_>,
    columns: &[Column],
    place: &Place<'_>,
    path_of: &dyn Fn(&str) -> PathBuf,
) -> Result<BTreeMap<String, Stats>> {
    let episode = &outline.episodes[place.episode];
    let mut found = BTreeMap::new();
    if let Cameras::Video(videos) = &outline.cameras {
        let source = outline.dataset.find(&episode.id)?;
        for column in in_videos(columns) {
            let stream = stream(episode, &column.name)?;
            let source = source.stream(&stream.source)?;
            let path = path_of(&column.name);
            let film = Film {
                videos: videos.as_ref(),
                path: &path,
                rate_hz: place.rate_hz,
            };
            let stats = film.write(reader, (stream, &source))?;
            found.extend(stats.map(|stats| (column.name.clone(), stats)));
        }
    }
    reader.next_episode()?;
    Ok(found)
}

/// A video file to write.
struct Film<'a> {
    videos: &'a dyn Videos,
    path: &'a Path,
    rate_hz: f64,
}

impl Film<'_> {
    fn write(
        &self,
        reader: &mut FrameReader<'_>,
        (stream, source): (&StreamOutline, &Stream),
    ) -> Result<Option<Stats>> {
        let fail = |error: VideoError| match error {
            VideoError::NoDecoder { what } => invalid(format!(
                "cameras cannot be written as video files: {what}; pip install 'kinograph[video]', or omit --cameras"
            )),
            error => unwritable(self.path, error),
        };
        let Some(shape @ (height, width, _)) = columns::image(stream) else {
            return Ok(None);
        };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
        }
        let shown = VideoShape {
            height,
            width,
            rate_hz: self.rate_hz,
        };
        create_new(self.path)?;
        let mut film = self.videos.create(self.path, shown).map_err(fail)?;
        let mut channels = Channels::new();
        let mut wanted = sampled(source.len()).into_iter().peekable();
        let bytes = stream.frame.as_values().map_or(1, ValueType::frame_bytes);
        reader.each_block(source, |frames, block| {
            for (frame, pixels) in frames.zip(block.chunks_exact(bytes.max(1))) {
                if wanted.next_if_eq(&frame).is_some() {
                    channels.add(pixels, shape);
                }
            }
            film.push(block).map_err(fail)
        })?;
        film.finish().map_err(fail)?;
        self.check(stream.frames)?;
        Ok(channels.finish())
    }

    /// Checks that every frame exists at its expected time.
    fn check(&self, frames: usize) -> Result<()> {
        let fail = |what: String| unwritable(self.path, VideoError::Damaged { what });
        let video = self.videos.open(self.path);
        let video = video.map_err(|error| unwritable(self.path, error))?;
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

fn stream<'a>(episode: &'a EpisodeOutline, name: &str) -> Result<&'a StreamOutline> {
    let found = episode.streams.iter().find(|stream| stream.name == name);
    found.ok_or_else(|| invalid(format!("episode `{}` has no stream `{name}`", episode.id)))
}

fn write_stream(
    out: &mut OutColumn<'_>,
    reader: &mut FrameReader<'_>,
    column: &Column,
    (stream, source): (&StreamOutline, &Stream),
) -> Result<Option<Stats>> {
    let Some(ty) = stream.frame.as_values() else {
        for text in reader.texts(source)? {
            out.text(Some(&text))?;
        }
        return Ok(None);
    };
    if let Some(shape) = columns::image(stream) {
        return write_images(out, reader, (stream, source), shape);
    }
    let has_stats = column.stats_shape().is_some();
    let mut packed = Vec::new();
    reader.each_block(source, |_, block| {
        if has_stats {
            packed.extend_from_slice(block);
        }
        out.numbers(block)
    })?;
    Ok(has_stats.then(|| Stats::of_numbers(&packed, ty)).flatten())
}

fn write_images(
    out: &mut OutColumn<'_>,
    reader: &mut FrameReader<'_>,
    (stream, source): (&StreamOutline, &Stream),
    shape: (usize, usize, usize),
) -> Result<Option<Stats>> {
    let Some(ty) = stream.frame.as_values() else {
        return Ok(None);
    };
    let is_deep = ty.dtype() == Dtype::U16;
    let mut channels = Channels::new();
    let wanted = sampled(source.len());
    if stream.is_jpeg
        && let Some(files) = reader.jpegs(stream, source)?
    {
        out.images(files)?;
        for frame in wanted {
            channels.add(&source.read(frame..frame + 1)?, shape);
        }
        return Ok(channels.finish());
    }
    let mut wanted = wanted.into_iter().peekable();
    reader.each_block(source, |frames, block| {
        let images: Vec<_> = block.chunks_exact(ty.frame_bytes().max(1)).collect();
        for (frame, pixels) in frames.zip(&images) {
            if !is_deep && wanted.next_if_eq(&frame).is_some() {
                channels.add(pixels, shape);
            }
        }
        let files = png::encode_all(ty, &images);
        let files = files.map_err(|what| unencodable(stream, &what))?;
        out.images(files)
    })?;
    Ok(channels.finish())
}

fn unencodable(stream: &StreamOutline, what: &str) -> ImportError {
    invalid(format!("stream `{}` {what}", stream.source))
}

/// Fills one of LeRobot's own columns.
fn write_own(
    out: &mut OutColumn<'_>,
    name: &str,
    place: &Place<'_>,
    frames: usize,
) -> Result<Option<Stats>> {
    let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX).to_le_bytes();
    let packed: Vec<u8> = match name {
        "timestamp" => (0..frames)
            .flat_map(|frame| to_f32(frame as f64 / place.rate_hz).to_le_bytes())
            .collect(),
        "frame_index" => (0..frames).flat_map(whole).collect(),
        "episode_index" => whole(place.episode).repeat(frames),
        "index" => (place.first..place.first + frames)
            .flat_map(whole)
            .collect(),
        _ => {
            let task = |frame| {
                let run = place.tasks.partition_point(|(start, _)| *start <= frame);
                place.tasks[run.saturating_sub(1)].1
            };
            (0..frames).map(task).flat_map(whole).collect()
        }
    };
    out.numbers(&packed)?;
    let dtype = if name == "timestamp" {
        Dtype::F32
    } else {
        Dtype::I64
    };
    let ty = ValueType::new(dtype, &[]).map_err(|error| invalid(error.to_string()))?;
    Ok(Stats::of_numbers(&packed, &ty))
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
