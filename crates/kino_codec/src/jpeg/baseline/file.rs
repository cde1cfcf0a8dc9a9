//! What a file's header says, if it is of the ordinary kind.

use crate::jpeg::ffi::Image;
use crate::jpeg::header::take_segment;

use super::Sampling;

/// The parts of an ordinary file.
pub(super) struct File<'f> {
    pub(super) sampling: Sampling,
    /// By component, in zigzag order.
    pub(super) quantisation: [&'f [u8; 64]; 3],
    /// By component.
    pub(super) direct: [Codes<'f>; 3],
    pub(super) alternating: [Codes<'f>; 3],
    /// What follows the header of the scan.
    scan: &'f [u8],
}

/// A Huffman table as it is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Codes<'f> {
    /// How many codes have 1, 2, … 16 bits.
    pub(super) counts: &'f [u8; 16],
    /// What they stand for, the shortest first.
    pub(super) symbols: &'f [u8],
}

#[derive(Default)]
struct Found<'f> {
    quantisation: [Option<&'f [u8; 64]>; 4],
    direct: [Option<Codes<'f>>; 4],
    alternating: [Option<Codes<'f>>; 4],
    frame: Option<&'f [u8]>,
}

impl<'f> File<'f> {
    /// Reads the segments up to the scan; `None` if the file is not of this kind, or not of this size.
    pub(super) fn parse(file: &'f [u8], image: Image) -> Option<Self> {
        let mut rest = file.strip_prefix(&[0xff, 0xd8])?;
        let mut found = Found::default();
        loop {
            let (marker, body) = take_segment(&mut rest).ok()?;
            match marker {
                0xdb => found.add_quantisation(body)?,
                0xc4 => found.add_huffman(body)?,
                0xc0 if found.frame.is_none() => found.frame = Some(body),
                0xda => return found.scan(body, rest, image),
                // Adobe's segment may say that the channels are RGB; DD counts MCUs between restarts.
                0xee | 0xdd | 0xc0..=0xcf => return None,
                // Version 1; libjpeg-turbo warns of others.
                0xe0 if body.starts_with(b"JFIF\0\x01") => {}
                0xe1..=0xef | 0xfe => {}
                _ => return None,
            }
        }
    }

    /// Copies the scan without its stuffed zeros, with zeros after its end; `None` if it does not end with the file's end marker.
    #[inline(always)]
    pub(super) fn copy_scan(&self, out: &mut Vec<u8>) -> Option<()> {
        const CHUNK: usize = 32;
        out.clear();
        out.reserve(self.scan.len() + AFTER);
        let mut rest = self.scan;
        loop {
            while let Some((chunk, after)) = rest.split_first_chunk::<CHUNK>() {
                if chunk.iter().fold(false, |any, byte| any | (*byte == 0xff)) {
                    break;
                }
                out.extend_from_slice(chunk);
                rest = after;
            }
            let at = rest.iter().position(|byte| *byte == 0xff)?;
            out.extend_from_slice(&rest[..at]);
            match rest.get(at + 1)? {
                0 => out.push(0xff),
                0xd9 => break,
                _ => return None,
            }
            rest = &rest[at + 2..];
        }
        out.extend_from_slice(&[0; AFTER]);
        Some(())
    }
}

/// Zeros after a scan, so that its last bits can be read eight bytes at a time.
pub(super) const AFTER: usize = 32;

impl<'f> Found<'f> {
    fn add_quantisation(&mut self, mut body: &'f [u8]) -> Option<()> {
        while let Some((&kind, rest)) = body.split_first() {
            // The upper half is not 0 if the table has 16 bits.
            let place = self.quantisation.get_mut(usize::from(kind))?;
            let (table, rest) = rest.split_first_chunk()?;
            *place = Some(table);
            body = rest;
        }
        Some(())
    }

    fn add_huffman(&mut self, mut body: &'f [u8]) -> Option<()> {
        while let Some((&kind, rest)) = body.split_first() {
            let class = match kind >> 4 {
                0 => &mut self.direct,
                1 => &mut self.alternating,
                _ => return None,
            };
            let place = class.get_mut(usize::from(kind & 15))?;
            let (counts, rest) = rest.split_first_chunk::<16>()?;
            let symbols = counts.iter().map(|count| usize::from(*count)).sum();
            let (symbols, rest) = rest.split_at_checked(symbols)?;
            *place = Some(Codes { counts, symbols });
            body = rest;
        }
        Some(())
    }

    fn scan(&self, body: &[u8], scan: &'f [u8], image: Image) -> Option<File<'f>> {
        let frame: &[u8; 15] = self.frame?.try_into().ok()?;
        let &[precision, h1, h0, w1, w0, 3, rest @ ..] = frame else {
            return None;
        };
        let [1, luma, q0, 2, 0x11, q1, 3, 0x11, q2] = rest else {
            return None;
        };
        let &[3, 1, t0, 2, t1, 3, t2, 0, 63, 0] = body else {
            return None;
        };
        let size = [[h1, h0], [w1, w0]].map(|side| usize::from(u16::from_be_bytes(side)));
        // Smaller images are not upsampled smoothly, and cost nothing.
        let is_large = image.height >= 8 && image.width >= 16;
        if precision != 8 || size != [image.height, image.width] || image.channels != 3 || !is_large
        {
            return None;
        }
        let (horizontal, vertical) = match luma {
            0x11 => (1, 1),
            0x21 => (2, 1),
            0x22 => (2, 2),
            _ => return None,
        };
        let quantisation = |idx: u8| *self.quantisation.get(usize::from(idx))?;
        let direct = |idx: u8| *self.direct.get(usize::from(idx >> 4))?;
        let alternating = |idx: u8| *self.alternating.get(usize::from(idx & 15))?;
        Some(File {
            sampling: Sampling {
                horizontal,
                vertical,
            },
            quantisation: [quantisation(q0)?, quantisation(q1)?, quantisation(q2)?],
            direct: [direct(t0)?, direct(t1)?, direct(t2)?],
            alternating: [alternating(t0)?, alternating(t1)?, alternating(t2)?],
            scan,
        })
    }
}
