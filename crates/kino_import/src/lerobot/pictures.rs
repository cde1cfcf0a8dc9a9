//! Pictures inside a parquet file: JPEG files are carried, PNG files are decoded.
//!
//! | file | stream |
//! |---|---|
//! | JPEG, grey or colour of 8 bits | image, carried as it is |
//! | PNG, grey, colour or palette of up to 8 bits, with or without alpha | image |
//! | PNG, grey of 16 bits | depth |

use kino_codec::{Dtype, FrameType, MAX_FRAME_BYTES};
use kino_dataset::Kind;
use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

use crate::jpeg;

/// What a picture file becomes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Picture {
    pub(super) kind: Kind,
    pub(super) frame: FrameType,
    pub(super) carried: bool,
}

/// What a picture file is, or why it is no frame.
pub(super) fn look(file: &[u8]) -> Result<Picture, String> {
    if jpeg::is_jpeg(file) {
        let header = jpeg::header(file).filter(|header| matches!(header.components, 1 | 3));
        let header = header.ok_or("is a JPEG file that is neither grey nor colour of 8 bits")?;
        let shape = [header.height, header.width, header.components];
        return picture(Kind::Image, Dtype::U8, &shape, true);
    }
    let reader = open_png(file)?;
    let (width, height) = reader.info().size();
    let (height, width) = (height as usize, width as usize);
    match reader.output_color_type() {
        (ColorType::Grayscale, BitDepth::Sixteen) => {
            picture(Kind::Depth, Dtype::U16, &[height, width], false)
        }
        (_, BitDepth::Sixteen) => Err("is a PNG file of 16-bit colour".to_owned()),
        // An image has one, three or four colours.
        (ColorType::GrayscaleAlpha, _) => Err("is a PNG file of grey with alpha".to_owned()),
        (colours, _) => picture(
            Kind::Image,
            Dtype::U8,
            &[height, width, colours.samples()],
            false,
        ),
    }
}

/// The pixels of a PNG file, little-endian, if it is what the stream's first was.
pub(super) fn decode(file: &[u8], expected: &Picture) -> Result<Vec<u8>, String> {
    let found = look(file)?;
    if &found != expected {
        return Err(format!(
            "is {}, the first is {}",
            found.frame, expected.frame
        ));
    }
    let mut reader = open_png(file)?;
    let bytes = reader
        .output_buffer_size()
        .filter(|&bytes| bytes <= MAX_FRAME_BYTES);
    let mut pixels = vec![0; bytes.ok_or("is a PNG file of an absurd size")?];
    reader
        .next_frame(&mut pixels)
        .map_err(|error| format!("is a PNG file that cannot be decoded ({error})"))?;
    if found.kind == Kind::Depth {
        // PNG is big-endian.
        let (numbers, _) = pixels.as_chunks_mut::<2>();
        numbers.iter_mut().for_each(|number| number.reverse());
    }
    Ok(pixels)
}

fn open_png(file: &[u8]) -> Result<png::Reader<std::io::Cursor<&[u8]>>, String> {
    if !file.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Err("is neither a JPEG nor a PNG file".to_owned());
    }
    let limits = Limits {
        bytes: MAX_FRAME_BYTES,
    };
    let mut decoder = Decoder::new_with_limits(std::io::Cursor::new(file), limits);
    decoder.set_transformations(Transformations::EXPAND);
    decoder
        .read_info()
        .map_err(|error| format!("is a PNG file that cannot be read ({error})"))
}

fn picture(kind: Kind, dtype: Dtype, shape: &[usize], carried: bool) -> Result<Picture, String> {
    let frame = FrameType::values(dtype, shape).map_err(|error| error.to_string())?;
    Ok(Picture {
        kind,
        frame,
        carried,
    })
}
