//! The parts of JPEG that importing needs: the size in the header, and the end of a padded file.
//!
//! ```text
//! FFD8  (FFxx len …)*  FFC0 len 08 height width components …  FFDA … entropy coded …  FFD9  00 00 00 …
//!                      └── frame header ───────────────────┘                           EOI  └ padding ┘
//! ```

/// The fields of a frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// 1 for grayscale, 3 for color.
    pub(crate) components: usize,
}

/// Whether the bytes start like a JPEG file.
pub(crate) fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xd8, 0xff])
}

/// The file without the zero padding after its end, or `None` if it has no end.
pub(crate) fn without_padding(bytes: &[u8]) -> Option<&[u8]> {
    // The end marker's last byte is not zero, so stripping zeros never eats into the file.
    let len = bytes.iter().rposition(|&byte| byte != 0)? + 1;
    let file = &bytes[..len];
    (is_jpeg(file) && file.ends_with(&[0xff, 0xd9])).then_some(file)
}

/// The frame header of a JPEG file, or `None` if none precedes the image data.
pub(crate) fn header(file: &[u8]) -> Option<Header> {
    let [height, width, components] = kino_codec::jpeg_frame_shape(file)?;
    (height > 0 && width > 0).then_some(Header {
        height,
        width,
        components,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A comment, then a frame header of 480×640×3, then nothing worth decoding.
    const FILE: &[u8] = &[
        0xff, 0xd8, 0xff, 0xfe, 0, 4, 1, 2, 0xff, 0xff, 0xc2, 0, 17, 8, 0x01, 0xe0, 0x02, 0x80, 3,
        1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0, 0xff, 0xda, 0, 2, 7, 0, 0xff, 0xd9,
    ];

    #[test]
    fn the_header_is_found_behind_other_segments() {
        let expected = Header {
            height: 480,
            width: 640,
            components: 3,
        };
        assert_eq!(header(FILE), Some(expected));
    }

    #[test]
    fn every_prefix_and_every_flipped_bit_is_an_answer_never_a_panic() {
        for len in 0..FILE.len() {
            let _ = header(&FILE[..len]);
            assert!(len == 0 || without_padding(&FILE[..len]).is_none(), "{len}");
        }
        for bit in 0..FILE.len() * 8 {
            let mut file = FILE.to_vec();
            file[bit / 8] ^= 1 << (bit % 8);
            let _ = header(&file);
        }
    }

    #[test]
    fn padding_is_stripped_up_to_the_end_marker() {
        let mut padded = FILE.to_vec();
        padded.extend([0; 9]);
        assert_eq!(without_padding(&padded), Some(FILE));
        assert_eq!(without_padding(FILE), Some(FILE));
        assert_eq!(without_padding(&[0; 9]), None);
        assert_eq!(without_padding(&[]), None);
    }
}
