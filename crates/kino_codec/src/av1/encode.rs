//! Frames to units: rav1e, configured so that groups are closed and the same frames always give the same bytes.

use rav1e::Config;
use rav1e::prelude::{
    ChromaSampling, ColorDescription, ColorPrimaries, Context, EncoderConfig, EncoderStatus,
    FrameType, MatrixCoefficients, PixelRange, SceneDetectionSpeed, SegmentationLevel,
    TransferCharacteristics, Tune,
};

use crate::error::{CodecError, Result, buffer};
use crate::frames::Frames;

use super::Size;
use super::yuv::{Planes, Split, chroma_side};

/// Encoder settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// 1 (finest) to 255.
    pub(super) quantizer: usize,
    /// 0 (slowest) to 10.
    pub(super) speed: u8,
    pub(super) planes: Planes,
}

/// The frames of one page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) size: Size,
    /// The packed images.
    pub(super) pixels: &'a [u8],
    /// The same; the protected ones are also stored exactly.
    pub(super) frames: Frames<'a>,
}

impl Group<'_> {
    /// One unit per frame; the first refers to nothing before it.
    pub(super) fn encode(&self, settings: Settings) -> Result<Vec<Vec<u8>>> {
        let size = self.size;
        let mut encoder = encoder(size, self.frames.len(), settings)?;
        let (_, width) = size.coded();
        for pixels in self.pixels.chunks_exact(size.bytes()) {
            let pixels = filled_up(size, pixels);
            let split = match settings.planes {
                Planes::Grey => Split {
                    y: pixels,
                    ..Split::default()
                },
                planes => Split::from_pixels(planes, width, &pixels),
            };
            let mut frame = encoder.new_frame();
            let channel = chroma_side(settings.planes, width);
            let planes = [(split.y, width), (split.u, channel), (split.v, channel)];
            for (plane, (values, stride)) in frame.planes.iter_mut().zip(planes) {
                if !values.is_empty() {
                    plane.copy_from_raw_u8(&values, stride, 1);
                }
            }
            encoder.send_frame(frame).map_err(failed)?;
        }
        encoder.flush();
        let units = receive(&mut encoder)?;
        if units.len() != self.frames.len() {
            return Err(buffer("the AV1 encoder lost a frame"));
        }
        Ok(units)
    }
}

/// All units of an encoder that has received its last frame.
fn receive(encoder: &mut Context<u8>) -> Result<Vec<Vec<u8>>> {
    let mut units = Vec::new();
    loop {
        match encoder.receive_packet() {
            Ok(packet) if units.is_empty() == (packet.frame_type == FrameType::KEY) => {
                units.push(packet.data);
            }
            Ok(_) => return Err(buffer("the AV1 encoder placed a key frame inside a group")),
            Err(EncoderStatus::Encoded) => {}
            Err(EncoderStatus::LimitReached) => return Ok(units),
            Err(status) => return Err(failed(status)),
        }
    }
}

/// An encoder for one group of `frames` frames, on the calling thread only.
fn encoder(size: Size, frames: usize, settings: Settings) -> Result<Context<u8>> {
    let mut config = EncoderConfig::with_speed_preset(settings.speed);
    (config.height, config.width) = size.coded();
    config.chroma_sampling = match settings.planes {
        Planes::Grey => ChromaSampling::Cs400,
        Planes::Half => ChromaSampling::Cs420,
        Planes::Full => ChromaSampling::Cs444,
    };
    config.pixel_range = PixelRange::Full;
    // For other players: our own decoder applies this matrix anyway.
    config.color_description = Some(ColorDescription {
        color_primaries: ColorPrimaries::BT709,
        transfer_characteristics: TransferCharacteristics::SRGB,
        matrix_coefficients: MatrixCoefficients::BT601,
    });
    config.quantizer = settings.quantizer;
    config.tune = Tune::Psnr;
    // One key frame, at the start, even if the scene changes.
    let frames = u64::try_from(frames).unwrap_or(u64::MAX);
    config.set_key_frame_interval(frames, frames);
    config.speed_settings.scene_detection_mode = SceneDetectionSpeed::None;
    // Measured on camera streams: neither saves bytes nor gains PSNR, and both encoder and decoder are faster without.
    config.speed_settings.cdef = false;
    config.speed_settings.segmentation = SegmentationLevel::Disabled;
    Config::new()
        .with_encoder_config(config)
        .with_threads(1)
        .new_context()
        .map_err(|error| buffer(format!("the AV1 encoder rejected its settings: {error}")))
}

/// Pads an image to whole blocks by repeating its last row and column.
fn filled_up(size: Size, pixels: &[u8]) -> Vec<u8> {
    let (height, width) = size.coded();
    if (height, width) == (size.height, size.width) {
        return pixels.to_vec();
    }
    let mut filled = Vec::with_capacity(height * width * size.channels);
    for y in 0..height {
        let row = &pixels[y.min(size.height - 1) * size.row_bytes()..][..size.row_bytes()];
        filled.extend_from_slice(row);
        let last = &row[row.len() - size.channels..];
        (size.width..width).for_each(|_| filled.extend_from_slice(last));
    }
    filled
}

fn failed(status: EncoderStatus) -> CodecError {
    buffer(format!("the AV1 encoder failed: {status}"))
}
