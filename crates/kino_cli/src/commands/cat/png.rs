//! Frames of a camera as PNG files: 8-bit images with 1, 3 or 4 channels, and 16-bit depth.

use std::fs::{self, File};
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kino_codec::Dtype;
use kino_dataset::Stream;
use png::{BitDepth, ColorType, Encoder};

use crate::output::{count, note, one_line};

/// How the frames of a stream are stored in a PNG file.
struct Layout {
    height: u32,
    width: u32,
    channels: ColorType,
    depth: BitDepth,
}

/// Whether the frames of a stream can be PNG files.
pub(super) fn is_image(stream: &Stream) -> bool {
    layout(stream).is_some()
}

/// Writes frames into a folder, each named by its index, or one frame to a file.
pub(super) fn write(path: &Path, stream: &Stream, frames: Range<usize>) -> Result<()> {
    let Some(layout) = layout(stream) else {
        bail!(
            "stream `{}` is {}, not an image; use --npy",
            one_line(&stream.schema().name),
            stream.frame_type()
        )
    };
    let is_file = path.extension().is_some_and(|ending| ending == "png");
    if is_file && frames.len() != 1 {
        bail!(
            "{} is one file, and {} were chosen; give a folder, or one frame with --frames 7",
            path.display(),
            count(frames.len(), "frame")
        );
    }
    if !is_file {
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
    }
    for frame in frames.clone() {
        let file = if is_file {
            path.to_owned()
        } else {
            path.join(format!("{frame:06}.png"))
        };
        let bytes = stream.read(frame..frame + 1)?;
        write_one(&file, &layout, bytes)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    note(&format!(
        "{}: {}",
        path.display(),
        count(frames.len(), "image")
    ));
    Ok(())
}

fn layout(stream: &Stream) -> Option<Layout> {
    let ty = stream.frame_type().as_values()?;
    let (height, width, channels) = match ty.shape() {
        [height, width] => (*height, *width, 1),
        [height, width, channels] => (*height, *width, *channels),
        _ => return None,
    };
    let (channels, depth) = match (ty.dtype(), channels) {
        (Dtype::U8, 1) => (ColorType::Grayscale, BitDepth::Eight),
        (Dtype::U8, 3) => (ColorType::Rgb, BitDepth::Eight),
        (Dtype::U8, 4) => (ColorType::Rgba, BitDepth::Eight),
        (Dtype::U16, 1) => (ColorType::Grayscale, BitDepth::Sixteen),
        _ => return None,
    };
    let side = |len: usize| u32::try_from(len).ok().filter(|&len| len > 0);
    Some(Layout {
        height: side(height)?,
        width: side(width)?,
        channels,
        depth,
    })
}

fn write_one(path: &Path, layout: &Layout, mut bytes: Vec<u8>) -> Result<()> {
    if layout.depth == BitDepth::Sixteen {
        // PNG is big-endian.
        bytes.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
    }
    let file = BufWriter::new(File::create(path)?);
    let mut encoder = Encoder::new(file, layout.width, layout.height);
    encoder.set_color(layout.channels);
    encoder.set_depth(layout.depth);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes)?;
    Ok(writer.finish()?)
}
