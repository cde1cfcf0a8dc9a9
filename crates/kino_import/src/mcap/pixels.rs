//! Images in messages: raw pixels in rows that may be padded, or JPEG and PNG files.
//!
//! ```text
//! { height, width, encoding: "bgr8", is_bigendian, step, data }    raw: a row is `step` bytes, including padding
//! { format: "jpeg", data }                                         a file
//! ```
//!
//! Bytes of JSON messages are text in base64. Video is in `track.rs`.

use std::borrow::Cow;

use kino_codec::{Dtype, ValueType};

use super::base64;
use super::message::Value;
use crate::image::{self, Encoded};
use crate::source::FrameBuf;
use crate::{jpeg, png};

/// The format of an image, from its sizes and file header, or what is wrong with it.
pub(super) fn look(message: &Value<'_>) -> Result<Encoded, String> {
    match Raw::of(message)? {
        Some(raw) => Ok(raw.look),
        None => image::look(&file(message)?).map_err(|what| match message.get("format") {
            Some(Value::Text(format)) => format!("{what}; its format is {format:?}"),
            _ => what,
        }),
    }
}

/// Adds an image to the frames.
pub(super) fn read(
    message: &Value<'_>,
    expected: &Encoded,
    out: &mut FrameBuf,
) -> Result<(), String> {
    let found = look(message)?;
    if found != *expected {
        return Err(format!(
            "is an image of {}, but the first is of {}",
            found.ty, expected.ty
        ));
    }
    match (Raw::of(message)?, out) {
        (Some(raw), FrameBuf::Values(values)) => raw.read(values),
        (Some(_), FrameBuf::Bytes(_)) => {}
        (None, FrameBuf::Values(values)) => values.append(&mut png::decode(&file(message)?)?.1),
        (None, FrameBuf::Bytes(files)) => {
            let file = file(message)?;
            files.push(jpeg::without_padding(&file).unwrap_or(&file).to_vec());
        }
    }
    Ok(())
}

/// The bytes of an image or video.
pub(super) fn data<'v>(message: &'v Value<'_>) -> Result<Cow<'v, [u8]>, String> {
    match message.get("data") {
        Some(Value::Numbers(Dtype::U8, bytes)) => Ok(Cow::Borrowed(bytes)),
        Some(Value::Text(text)) => {
            let bytes = base64::decode(text).ok_or("has text in `data` that is not base64")?;
            Ok(Cow::Owned(bytes))
        }
        _ => Err("has no bytes in `data`".to_owned()),
    }
}

/// The header of `compressed_depth_image_transport`: its format, and two parameters for float depth.
const DEPTH_HEAD_BYTES: usize = 12;

fn file<'v>(message: &'v Value<'_>) -> Result<Cow<'v, [u8]>, String> {
    let mut bytes = data(message)?;
    let behind = bytes.get(DEPTH_HEAD_BYTES..).unwrap_or_default();
    let format = message
        .get("format")
        .map(Value::to_json)
        .unwrap_or_default();
    let is_depth = format
        .as_str()
        .is_some_and(|format| format.starts_with("16UC1; compressedDepth"));
    if is_depth && png::is_png(behind) {
        bytes = match bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[DEPTH_HEAD_BYTES..]),
            Cow::Owned(mut bytes) => Cow::Owned(bytes.split_off(DEPTH_HEAD_BYTES)),
        };
    }
    Ok(bytes)
}

struct Raw<'v> {
    look: Encoded,
    data: Cow<'v, [u8]>,
    step: usize,
    row_bytes: usize,
    is_big: bool,
    /// Whether the order is BGR.
    is_blue_first: bool,
}

impl<'v> Raw<'v> {
    /// The image of a message; `None` if it is a file.
    fn of(message: &'v Value<'_>) -> Result<Option<Self>, String> {
        let encoding = match message.get("encoding") {
            None => return Ok(None),
            Some(Value::Text(encoding)) => encoding,
            Some(_) => return Err("is an image without `encoding`".to_owned()),
        };
        let size = |name: &str| {
            let size = message.get(name).and_then(Value::to_i64);
            let size = size.and_then(|size| usize::try_from(size).ok());
            size.ok_or_else(|| format!("is an image without `{name}`"))
        };
        let (height, width) = (size("height")?, size("width")?);
        let (dtype, channels) = layout(encoding)?;
        let shape = match channels {
            Some(channels) => vec![height, width, channels],
            None => vec![height, width],
        };
        let ty =
            ValueType::new(dtype, &shape).map_err(|error| format!("is an image with {error}"))?;
        if ty.elements() == 0 {
            return Err("is an image without pixels".to_owned());
        }
        let row_bytes = ty.frame_bytes() / height;
        let step = match size("step").unwrap_or(0) {
            0 => row_bytes,
            step => step,
        };
        let data = data(message)?;
        let wanted = step.saturating_mul(height - 1).saturating_add(row_bytes);
        if step < row_bytes || data.len() < wanted {
            return Err(format!(
                "is an image of {ty} in {} bytes with rows of {step}, which do not match",
                data.len()
            ));
        }
        let is_big = message.get("is_bigendian").and_then(Value::to_i64);
        Ok(Some(Self {
            look: Encoded { ty, carried: false },
            data,
            step,
            row_bytes,
            is_big: is_big.unwrap_or(0) != 0,
            is_blue_first: encoding.starts_with("bgr"),
        }))
    }

    fn read(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for row in self.data.chunks(self.step).take(self.look.ty.shape()[0]) {
            out.extend(&row[..self.row_bytes]);
        }
        let (pixels, size) = (&mut out[start..], self.look.ty.dtype().size());
        if self.is_big && size > 1 {
            pixels.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        if self.is_blue_first {
            let channels = self.look.ty.shape().last().copied().unwrap_or(3);
            pixels
                .chunks_exact_mut(channels)
                .for_each(|pixel| pixel.swap(0, 2));
        }
    }
}

/// The dtype of an encoding and its number of channels; none for depth.
fn layout(encoding: &str) -> Result<(Dtype, Option<usize>), String> {
    Ok(match encoding {
        "rgb8" | "bgr8" | "8UC3" => (Dtype::U8, Some(3)),
        "rgba8" | "bgra8" | "8UC4" => (Dtype::U8, Some(4)),
        "mono8" | "8UC1" | "bayer_rggb8" | "bayer_bggr8" | "bayer_gbrg8" | "bayer_grbg8" => {
            (Dtype::U8, Some(1))
        }
        "mono16" | "16UC1" => (Dtype::U16, None),
        "32FC1" => (Dtype::F32, None),
        other => {
            return Err(format!(
                "is an image in {other:?}; supported are rgb8, bgr8, rgba8, bgra8, mono8, bayer_*8, mono16, 16UC1, 32FC1"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use kino_dataset::Kind;

    use super::*;

    fn image(
        encoding: &'static str,
        size: (u32, u32, u32),
        is_big: u8,
        data: &'static [u8],
    ) -> Value<'static> {
        let number =
            |value: u32| Value::Number(Dtype::U32, Cow::Owned(value.to_le_bytes().to_vec()));
        Value::Message(vec![
            ("height".into(), number(size.0)),
            ("width".into(), number(size.1)),
            ("encoding".into(), Value::Text(encoding.into())),
            ("is_bigendian".into(), number(u32::from(is_big))),
            ("step".into(), number(size.2)),
            (
                "data".into(),
                Value::Numbers(Dtype::U8, Cow::Borrowed(data)),
            ),
        ])
    }

    fn pixels(image: &Value<'_>) -> Vec<u8> {
        let mut out = FrameBuf::default();
        read(image, &look(image).unwrap(), &mut out).unwrap();
        match out {
            FrameBuf::Values(values) => values,
            FrameBuf::Bytes(_) => panic!("pixels are numbers"),
        }
    }

    #[test]
    fn row_padding_is_dropped_and_values_become_little_endian() {
        let bgr = image("bgr8", (2, 1, 4), 0, &[3, 2, 1, 0xee, 6, 5, 4]);
        assert_eq!(pixels(&bgr), [1, 2, 3, 4, 5, 6]);
        let depth = image("16UC1", (1, 2, 4), 1, &[1, 2, 3, 4]);
        assert_eq!(pixels(&depth), [2, 1, 4, 3]);
        assert_eq!(look(&depth).unwrap().kind(), Kind::Depth);
    }

    #[test]
    fn a_depth_file_follows_its_transport_header() {
        let mut bytes = vec![0; DEPTH_HEAD_BYTES];
        let mut encoder = ::png::Encoder::new(&mut bytes, 2, 1);
        encoder.set_color(::png::ColorType::Grayscale);
        encoder.set_depth(::png::BitDepth::Sixteen);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&[1, 2, 3, 4]).unwrap();
        writer.finish().unwrap();
        let message = |format: &'static str| {
            let data = Value::Numbers(Dtype::U8, Cow::Borrowed(&*bytes));
            let format = Value::Text(format.into());
            Value::Message(vec![("format".into(), format), ("data".into(), data)])
        };
        let depth = message("16UC1; compressedDepth png");
        assert_eq!(look(&depth).unwrap().kind(), Kind::Depth);
        assert_eq!(pixels(&depth), [2, 1, 4, 3]);
        // Floats are quantized there, which is not supported.
        assert!(look(&message("32FC1; compressedDepth png")).is_err());
    }

    #[test]
    fn bytes_of_json_messages_are_base64() {
        let message = |data: &'static str| {
            let fields = [("format", "png"), ("data", data)];
            let fields = fields.map(|(name, text)| (name.into(), Value::Text(text.into())));
            Value::Message(fields.into())
        };
        assert_eq!(data(&message("/wAB")).unwrap(), &[0xff, 0, 1][..]);
        assert!(data(&message("/w A")).unwrap_err().contains("base64"));
        assert!(look(&message("/wAB")).unwrap_err().contains("\"png\""));
    }

    #[test]
    fn sizes_that_lie_are_refused() {
        for (size, data) in [
            ((2, 1, 4), &[0; 6][..]),
            ((1, 2, 5), &[0; 6]),
            ((u32::MAX, u32::MAX, u32::MAX), &[0; 6]),
            ((0, 2, 6), &[0; 6]),
        ] {
            assert!(look(&image("rgb8", size, 0, data)).is_err(), "{size:?}");
        }
        assert!(
            look(&image("yuv422", (1, 2, 6), 0, &[0; 6]))
                .unwrap_err()
                .contains("yuv422")
        );
    }
}
