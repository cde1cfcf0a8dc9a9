//! Decodes and encodes PNG files. PNG is lossless: the pixels are stored exactly, in a codec that decodes faster.
//!
//! ```text
//! 89 PNG …  IHDR width height depth channels  …  IDAT …  IEND ◀─▶ u8 or u16 [height, width, 1 to 4]
//! ```
//!
//! A palette is expanded to the channels it maps to, and grayscale of fewer than 8 bits to 8.

use std::io::Cursor;

use kino_codec::{Dtype, MAX_FRAME_BYTES, ValueType};
use png::{BitDepth, ColorType, Compression, Decoder, Encoder, Limits, Reader, Transformations};

/// The pixels of an image: their type, of the shape `[height, width, channels]`, and the values.
pub(crate) type Pixels = (ValueType, Vec<u8>);

/// Whether the bytes start like a PNG file.
pub(crate) fn is_png(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG\r\n\x1a\n")
}

/// The type of the pixels, from the header.
pub(crate) fn header(bytes: &[u8]) -> Result<ValueType, String> {
    value_type(&reader(bytes)?)
}

/// Decodes a file. Refuses images of more than [`MAX_FRAME_BYTES`] before allocating.
pub(crate) fn decode(bytes: &[u8]) -> Result<Pixels, String> {
    let mut reader = reader(bytes)?;
    let ty = value_type(&reader)?;
    let mut values = vec![0; ty.frame_bytes()];
    if reader.output_buffer_size() != Some(values.len()) {
        return Err("is a PNG file with an unreasonable image size".to_owned());
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

/// Encodes frames of one type on all cores.
pub(crate) fn encode_all(ty: &ValueType, frames: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = frames.len().div_ceil(threads).max(1);
    let encode_some = |some: &[&[u8]]| -> Result<Vec<_>, String> {
        let files = some.iter().map(|frame| encode(ty, frame));
        files.collect()
    };
    if frames.len() <= share {
        return encode_some(frames);
    }
    std::thread::scope(|scope| {
        let spawn = |some| {
            let builder = std::thread::Builder::new().name("kino-png".to_owned());
            let thread = builder.spawn_scoped(scope, move || encode_some(some));
            thread.map_err(|error| format!("cannot be encoded: {error}"))
        };
        let threads: Vec<_> = frames.chunks(share).map(spawn).collect::<Result<_, _>>()?;
        let mut files = Vec::with_capacity(frames.len());
        for thread in threads {
            let some = thread.join();
            let some = some.map_err(|_| "made the PNG encoder panic".to_owned())?;
            files.append(&mut some?);
        }
        Ok(files)
    })
}

fn reader(bytes: &[u8]) -> Result<Reader<Cursor<&[u8]>>, String> {
    let limits = Limits {
        bytes: MAX_FRAME_BYTES,
    };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND);
    let reader = decoder.read_info();
    let reader = reader.map_err(|error| format!("is a damaged PNG file: {error}"))?;
    // `png` 0.18.1 panics when it expands any other palette.
    let colors = reader.info().palette.as_deref().map_or(0, <[u8]>::len);
    if !colors.is_multiple_of(3) || colors > 3 * 256 {
        return Err(format!(
            "is a damaged PNG file: a palette of {colors} bytes"
        ));
    }
    Ok(reader)
}

fn value_type(reader: &Reader<Cursor<&[u8]>>) -> Result<ValueType, String> {
    let (color, depth) = reader.output_color_type();
    let channels = match color {
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
    let shape = [dim(info.height), dim(info.width), channels];
    ValueType::new(dtype, &shape).map_err(|error| format!("is a PNG file with {error}"))
}

/// The PNG parameters of a frame; `None` if PNG cannot hold such frames. `[height, width]` is grayscale.
fn form(ty: &ValueType) -> Option<(u32, u32, ColorType, BitDepth)> {
    let (height, width, channels) = match *ty.shape() {
        [height, width] => (height, width, 1),
        [height, width, channels] => (height, width, channels),
        _ => return None,
    };
    let color = match channels {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        4 => ColorType::Rgba,
        _ => return None,
    };
    let depth = match ty.dtype() {
        Dtype::U8 => BitDepth::Eight,
        Dtype::U16 => BitDepth::Sixteen,
        _ => return None,
    };
    let side = |len: usize| u32::try_from(len).ok().filter(|&len| len > 0);
    Some((side(width)?, side(height)?, color, depth))
}

/// Whether a PNG file can hold frames of this type.
pub(crate) fn holds(ty: &ValueType) -> bool {
    form(ty).is_some()
}

/// Encodes a frame. The same frame always gives the same bytes.
pub(crate) fn encode(ty: &ValueType, values: &[u8]) -> Result<Vec<u8>, String> {
    let (width, height, color, depth) = form(ty).ok_or("is not an image that PNG can hold")?;
    let swapped: Vec<u8>;
    let values = match depth {
        BitDepth::Sixteen => {
            let numbers = values.as_chunks::<2>().0;
            swapped = numbers
                .iter()
                .flat_map(|&[low, high]| [high, low])
                .collect();
            &swapped
        }
        _ => values,
    };
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    encoder.set_compression(Compression::Fast);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(values)?;
        writer.finish()
    });
    written.map_err(|error| format!("cannot be encoded as PNG: {error}"))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(color: ColorType, depth: BitDepth, size: (u32, u32), values: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, size.0, size.1);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette(vec![1, 2, 3, 4, 5, 6]);
        }
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(values).unwrap();
        writer.finish().unwrap();
        file
    }

    #[test]
    fn pixels_of_every_type_are_decoded() {
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
    fn encoded_pixels_decode_to_the_same_values() {
        for (dtype, shape) in [
            (Dtype::U8, &[2, 3, 3][..]),
            (Dtype::U8, &[4, 1]),
            (Dtype::U8, &[3, 2, 4]),
            (Dtype::U16, &[2, 5, 1]),
            (Dtype::U16, &[2, 2, 2]),
        ] {
            let ty = ValueType::new(dtype, shape).unwrap();
            let values: Vec<u8> = (0..=255).cycle().take(ty.frame_bytes()).collect();
            let file = super::encode(&ty, &values).unwrap();
            assert_eq!(decode(&file).unwrap().1, values, "{ty}");
            assert_eq!(file, super::encode(&ty, &values).unwrap());
            assert!(super::encode(&ty, &values[1..]).is_err());
        }
        for (dtype, shape) in [
            (Dtype::F32, &[2, 2][..]),
            (Dtype::U8, &[2, 2, 5]),
            (Dtype::U8, &[0, 2]),
            (Dtype::U8, &[7]),
        ] {
            assert!(!holds(&ValueType::new(dtype, shape).unwrap()));
        }
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
    fn a_palette_of_half_a_color_or_too_many_is_refused() {
        for len in [1, 4, 767, 769, 771, 900] {
            let mut file = Vec::new();
            let mut encoder = Encoder::new(&mut file, 3, 1);
            encoder.set_color(ColorType::Indexed);
            encoder.set_depth(BitDepth::Eight);
            encoder.set_palette(vec![7; len]);
            let mut writer = encoder.write_header().unwrap();
            writer.write_image_data(&[0, 0, 0]).unwrap();
            writer.finish().unwrap();
            assert!(header(&file).is_err() && decode(&file).is_err(), "{len}");
        }
    }

    #[test]
    fn an_absurd_size_is_refused_before_it_is_allocated() {
        let mut file = encode(ColorType::Rgb, BitDepth::Eight, (4, 4), &[7; 48]);
        file[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
        assert!(header(&file).is_err() && decode(&file).is_err());
    }
}
