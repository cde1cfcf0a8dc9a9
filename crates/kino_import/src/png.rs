//! PNG files to pixels. PNG is lossless: the pixels are stored again, exactly, in a codec that reads faster.
//!
//! ```text
//! 89 PNG …  IHDR width height depth colours  …  IDAT …  IEND ──▶ u8 or u16 [height, width, 1 to 4]
//! ```
//!
//! A palette becomes the colours it stands for, and grey of fewer than 8 bits becomes 8.

use std::io::Cursor;

use kino_codec::{Dtype, MAX_FRAME_BYTES, ValueType};
use png::{BitDepth, ColorType, Decoder, Limits, Reader, Transformations};

/// The pixels of a picture: their type, of the shape `[height, width, colours]`, and the values.
pub(crate) type Pixels = (ValueType, Vec<u8>);

/// Whether the bytes start as a PNG file does.
pub(crate) fn is_png(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG\r\n\x1a\n")
}

/// What the pixels will be, from what stands before them.
pub(crate) fn header(bytes: &[u8]) -> Result<ValueType, String> {
    value_type(&reader(bytes)?)
}

/// Decodes a file. Refuses pictures of more than [`MAX_FRAME_BYTES`] before it allocates them.
pub(crate) fn decode(bytes: &[u8]) -> Result<Pixels, String> {
    let mut reader = reader(bytes)?;
    let ty = value_type(&reader)?;
    let mut values = vec![0; ty.frame_bytes()];
    if reader.output_buffer_size() != Some(values.len()) {
        return Err("is a PNG file of a size that no picture has".to_owned());
    }
    let damaged = |error| format!("is a damaged PNG file: {error}");
    reader.next_frame(&mut values).map_err(damaged)?;
    reader.finish().map_err(damaged)?;
    if ty.dtype() == Dtype::U16 {
        for number in values.as_chunks_mut::<2>().0 {
            number.reverse();
        }
    }
    Ok((ty, values))
}

fn reader(bytes: &[u8]) -> Result<Reader<Cursor<&[u8]>>, String> {
    let limits = Limits {
        bytes: MAX_FRAME_BYTES,
    };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND);
    let reader = decoder.read_info();
    reader.map_err(|error| format!("is a damaged PNG file: {error}"))
}

fn value_type(reader: &Reader<Cursor<&[u8]>>) -> Result<ValueType, String> {
    let (colour, depth) = reader.output_color_type();
    let colours = match colour {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb | ColorType::Indexed => 3,
        ColorType::Rgba => 4,
    };
    let dtype = match depth {
        BitDepth::Sixteen => Dtype::U16,
        _ => Dtype::U8,
    };
    let dim = |len| usize::try_from(len).unwrap_or(usize::MAX);
    let info = reader.info();
    let shape = [dim(info.height), dim(info.width), colours];
    ValueType::new(dtype, &shape).map_err(|error| format!("is a PNG file with {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(colour: ColorType, depth: BitDepth, size: (u32, u32), values: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, size.0, size.1);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        if colour == ColorType::Indexed {
            encoder.set_palette(vec![1, 2, 3, 4, 5, 6]);
        }
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(values).unwrap();
        writer.finish().unwrap();
        file
    }

    #[test]
    fn pixels_of_every_type_come_back() {
        let rgb = encode(ColorType::Rgb, BitDepth::Eight, (2, 1), &[1, 2, 3, 4, 5, 6]);
        let (ty, values) = decode(&rgb).unwrap();
        assert_eq!((ty.dtype(), ty.shape()), (Dtype::U8, &[1, 2, 3][..]));
        assert_eq!(values, [1, 2, 3, 4, 5, 6]);
        let depth = encode(
            ColorType::Grayscale,
            BitDepth::Sixteen,
            (1, 2),
            &[1, 2, 3, 4],
        );
        let (ty, values) = decode(&depth).unwrap();
        assert_eq!((ty.dtype(), ty.shape()), (Dtype::U16, &[2, 1, 1][..]));
        assert_eq!(values, [2, 1, 4, 3], "big-endian in the file");
        let palette = encode(ColorType::Indexed, BitDepth::One, (3, 1), &[0b0110_0000]);
        assert_eq!(decode(&palette).unwrap().1, [1, 2, 3, 4, 5, 6, 4, 5, 6]);
        assert_eq!(header(&palette).unwrap().shape(), [1, 3, 3]);
    }

    #[test]
    fn every_prefix_is_refused_and_no_flipped_bit_panics() {
        let file = encode(ColorType::Rgb, BitDepth::Eight, (4, 4), &[7; 48]);
        for len in 0..file.len() {
            assert!(decode(&file[..len]).is_err(), "{len}");
        }
        for bit in 0..file.len() * 8 {
            let mut file = file.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&file);
        }
    }

    #[test]
    fn an_absurd_size_is_refused_before_it_is_allocated() {
        let mut file = encode(ColorType::Rgb, BitDepth::Eight, (4, 4), &[7; 48]);
        file[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
        assert!(header(&file).is_err() && decode(&file).is_err());
    }
}
