//! Reads frames for exporters, a block at a time, and reports progress.

use std::ops::{ControlFlow, Range};

use kino_codec::{Scratch, ValueType, VideoCoding};
use kino_dataset::{Kind, Stream};

use crate::error::{Result, invalid};
use crate::export::{Outline, StreamOutline};
use crate::png;
use crate::progress::{Progress, Reporter};
use crate::source::block_frames;

/// Reads frames for an exporter, and reports progress to the caller.
pub(crate) struct FrameReader<'a> {
    reporter: Reporter<'a>,
    scratch: Scratch,
}

/// Whether all frames of a page must be read together to decode each only once. Decoders of video go on where they stopped.
fn is_grouped(stream: &Stream) -> bool {
    let codec = &stream.schema().codec;
    let is_grouped = kino_codec::describe(codec).is_some_and(|codec| codec.is_grouped);
    is_grouped && VideoCoding::of_codec(codec).is_none()
}

impl<'a> FrameReader<'a> {
    pub(crate) fn new(
        outline: &Outline,
        report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Self {
        let streams = outline.mine().flat_map(|(_, episode)| &episode.streams);
        let bytes = streams.map(StreamOutline::raw_bytes);
        Self {
            reporter: Reporter::new(report, outline.mine().count(), bytes),
            scratch: Scratch::new(),
        }
    }

    /// Passes all frames of a numeric stream to `take`, in blocks, in order.
    pub(crate) fn each_block(
        &mut self,
        stream: &Stream,
        mut take: impl FnMut(Range<usize>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut start = 0;
        while start < stream.len() {
            let (frames, block) = self.block(stream, start)?;
            take(frames.clone(), &block)?;
            start = frames.end;
        }
        Ok(())
    }

    /// A block of frames of a numeric stream, from `start` on.
    pub(crate) fn block(
        &mut self,
        stream: &Stream,
        start: usize,
    ) -> Result<(Range<usize>, Vec<u8>)> {
        let step = usize::try_from(block_frames(stream.frame_type())).unwrap_or(1);
        let frames = start..stream.len().min(start.saturating_add(step));
        let frames = if is_grouped(stream) {
            start..stream.page_end(start)
        } else {
            frames
        };
        let size = stream
            .frame_type()
            .as_values()
            .map_or(0, ValueType::frame_bytes);
        let mut block = vec![0; frames.len() * size];
        stream.read_into(frames.clone(), &mut block, &mut self.scratch)?;
        self.add_bytes(block.len() as u64)?;
        Ok((frames, block))
    }

    /// The JPEG file of a frame.
    pub(crate) fn jpeg(
        &mut self,
        source: &Stream,
        ty: &ValueType,
        frame: usize,
    ) -> Result<Vec<u8>> {
        let Some(file) = source.read_bitstream(frame)? else {
            let name = &source.schema().name;
            return Err(invalid(format!(
                "stream `{name}` does not store a JPEG file for frame {frame}"
            )));
        };
        self.add_bytes(ty.frame_bytes() as u64)?;
        Ok(file)
    }

    pub(crate) fn texts(&mut self, stream: &Stream) -> Result<Vec<String>> {
        Ok(stream.read_text(0..stream.len())?)
    }

    /// All images of a stream as JPEG files, if the stream stores one for every frame.
    pub(crate) fn jpegs(
        &mut self,
        stream: &StreamOutline,
        source: &Stream,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let mut files = Vec::new();
        for frame in 0..source.len() {
            let Some(file) = source.read_bitstream(frame)? else {
                return Ok(None);
            };
            files.push(file);
        }
        self.add_bytes(stream.raw_bytes())?;
        Ok(Some(files))
    }

    /// Passes all images of a stream to `take` as files, in order, with the frame number.
    pub(crate) fn each_image(
        &mut self,
        source: &Stream,
        form: &ImageForm,
        mut take: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let name = &source.schema().name;
        match form {
            ImageForm::Jpeg(ty) => {
                for frame in 0..source.len() {
                    take(frame, &self.jpeg(source, ty, frame)?)?;
                }
                Ok(())
            }
            ImageForm::Png(ty) => self.each_block(source, |frames, block| {
                for (frame, values) in frames.zip(block.chunks_exact(ty.frame_bytes())) {
                    let file = png::encode(ty, values).map_err(|what| {
                        invalid(format!("frame {frame} of stream `{name}` {what}"))
                    })?;
                    take(frame, &file)?;
                }
                Ok(())
            }),
        }
    }

    /// Reports that an episode is done.
    pub(crate) fn next_episode(&mut self) -> Result<()> {
        self.reporter.progress.episodes_done += 1;
        self.reporter.tell()
    }

    pub(crate) fn add_bytes(&mut self, bytes: u64) -> Result<()> {
        self.reporter.progress.bytes_done += bytes;
        self.reporter.tell()
    }
}

/// How the images of a stream become files.
#[derive(Debug)]
pub(crate) enum ImageForm {
    /// The files that the dataset stores.
    Jpeg(ValueType),
    /// Pixels, encoded losslessly.
    Png(ValueType),
}

impl ImageForm {
    pub(crate) fn ending(&self) -> &'static str {
        match self {
            Self::Jpeg(_) => "jpg",
            Self::Png(_) => "png",
        }
    }
}

impl StreamOutline {
    /// How its images become files; `None` if it has no images, or images that no file can hold.
    pub(crate) fn image_form(&self) -> Option<ImageForm> {
        let ty = self.frame.as_values()?.clone();
        let is_image = matches!(self.kind, Kind::Image | Kind::Depth) && png::holds(&ty);
        let form = if self.is_jpeg {
            ImageForm::Jpeg
        } else {
            ImageForm::Png
        };
        is_image.then(|| form(ty))
    }

    /// Bytes of its frames; 0 for text.
    pub(crate) fn raw_bytes(&self) -> u64 {
        let frame = self.frame.as_values().map_or(0, |ty| ty.frame_bytes());
        (frame as u64).saturating_mul(self.frames as u64)
    }
}
