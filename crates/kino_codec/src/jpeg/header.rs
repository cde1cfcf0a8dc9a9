//! What a JPEG file's header declares, read in safe code before the library sees it.
//!
//! ```text
//! FFD8 │ FFxx length body │ FFxx length body │ … │ FFDA length body │ entropy-coded data … │ FFD9
//! SOI    marker segments: DQT, DHT, SOF, APPn, …   SOS
//! ```
//!
//! The library keeps quantisation and Huffman tables from file to file and would silently use the last
//! image's where a file has none (motion-JPEG cameras omit them). A page must decode alone, so
//! [`Header::parse`] rejects a file whose first scan needs a table that the file does not contain.

use crate::error::{CodecError, Result, corrupt};

use super::NAME;

/// The frame header of a JPEG file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    /// Whether every pixel is in the first scan, whose tables are known to be in the file.
    pub(crate) single_scan: bool,
}

/// A frame header and the quantisation tables it uses.
struct FrameHeader {
    height: usize,
    width: usize,
    channels: usize,
    /// The quantisation table of each channel; unused slots repeat the first.
    quantisation: [u8; 4],
    progressive: bool,
}

impl Header {
    /// Reads the segments of `file` up to its first scan.
    pub(crate) fn parse(file: &[u8]) -> Result<Self> {
        let mut rest = file
            .strip_prefix(&[0xff, 0xd8])
            .ok_or_else(|| damaged("it does not start as a JPEG file"))?;
        let mut tables = Tables::default();
        let mut frame = None;
        loop {
            let (marker, body) = take_segment(&mut rest)?;
            match marker {
                0xdb => tables.add_quantisation(body)?,
                0xc4 => tables.add_huffman(body)?,
                0xc0..=0xc2 if frame.is_none() => {
                    frame = Some(parse_frame(marker == 0xc2, body)?);
                }
                0xc0..=0xcf => {
                    return Err(damaged(
                        "only Huffman-coded baseline and progressive files are read",
                    ));
                }
                0xda => {
                    let frame = frame.ok_or_else(|| damaged("a scan precedes the frame header"))?;
                    return tables.check_scan(&frame, body);
                }
                _ => {}
            }
        }
    }
}

/// The frame header of a file of any coding, also one that `jpeg:carry` cannot store; `None` if none precedes the image
/// data.
pub(super) fn frame_shape(file: &[u8]) -> Option<[usize; 3]> {
    let mut rest = file.strip_prefix(&[0xff, 0xd8])?;
    loop {
        match take_segment(&mut rest).ok()? {
            // C4, C8 and CC are tables that share the range of the frame headers.
            (0xc4 | 0xc8 | 0xcc, _) => {}
            (0xc0..=0xcf, body) => {
                let frame = parse_frame(false, body).ok()?;
                return Some([frame.height, frame.width, frame.channels]);
            }
            (0xda, _) => return None,
            _ => {}
        }
    }
}

/// Takes the next marker segment: its marker and its body.
pub(super) fn take_segment<'a>(rest: &mut &'a [u8]) -> Result<(u8, &'a [u8])> {
    let truncated = || damaged("it ends before its first scan");
    let after = rest.strip_prefix(&[0xff]).ok_or_else(|| {
        if rest.is_empty() {
            truncated()
        } else {
            damaged("a marker is missing")
        }
    })?;
    // Any number of fill bytes may precede a marker.
    let fill = after.iter().take_while(|byte| **byte == 0xff).count();
    let (&marker, after) = after[fill..].split_first().ok_or_else(truncated)?;
    if matches!(marker, 0 | 1 | 0xd0..=0xd9) {
        return Err(damaged(format!(
            "marker {marker:02x} is not allowed before the first scan"
        )));
    }
    let (len, _) = after.split_first_chunk().ok_or_else(truncated)?;
    let len = usize::from(u16::from_be_bytes(*len));
    let (segment, after) = after.split_at_checked(len).ok_or_else(truncated)?;
    *rest = after;
    let body = segment
        .get(2..)
        .ok_or_else(|| damaged("a segment has no valid length"))?;
    Ok((marker, body))
}

fn parse_frame(progressive: bool, body: &[u8]) -> Result<FrameHeader> {
    let Some((&[precision, h1, h0, w1, w0, count], components)) = body.split_first_chunk() else {
        return Err(damaged("its frame header is truncated"));
    };
    if precision != 8 {
        return Err(damaged(format!(
            "it has {precision} bits per sample, not 8"
        )));
    }
    let channels = usize::from(count);
    if !(1..=4).contains(&channels) || components.len() != 3 * channels {
        return Err(damaged(format!("its frame header has {channels} channels")));
    }
    let mut quantisation = [components[2]; 4];
    for (table, component) in quantisation.iter_mut().zip(components.chunks_exact(3)) {
        *table = component[2];
    }
    Ok(FrameHeader {
        height: usize::from(u16::from_be_bytes([h1, h0])),
        width: usize::from(u16::from_be_bytes([w1, w0])),
        channels,
        quantisation,
        progressive,
    })
}

/// Which tables the file has defined so far, by id.
#[derive(Default)]
struct Tables {
    quantisation: [bool; 4],
    direct: [bool; 4],
    alternating: [bool; 4],
}

impl Tables {
    fn add_quantisation(&mut self, mut body: &[u8]) -> Result<()> {
        while let Some((&kind, rest)) = body.split_first() {
            let len = if kind >> 4 == 0 { 64 } else { 128 };
            mark(&mut self.quantisation, kind & 15)?;
            body = rest
                .get(len..)
                .ok_or_else(|| damaged("a table is truncated"))?;
        }
        Ok(())
    }

    fn add_huffman(&mut self, mut body: &[u8]) -> Result<()> {
        while let Some((&kind, rest)) = body.split_first() {
            let (counts, rest) = rest
                .split_first_chunk::<16>()
                .ok_or_else(|| damaged("a table is truncated"))?;
            let symbols: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let class = if kind >> 4 == 0 {
                &mut self.direct
            } else {
                &mut self.alternating
            };
            mark(class, kind & 15)?;
            body = rest
                .get(symbols..)
                .ok_or_else(|| damaged("a table is truncated"))?;
        }
        Ok(())
    }

    /// Checks that the first scan, whose header is `body`, has its tables.
    fn check_scan(&self, frame: &FrameHeader, body: &[u8]) -> Result<Header> {
        let (&count, rest) = body
            .split_first()
            .ok_or_else(|| damaged("its scan header is truncated"))?;
        let components = rest
            .get(..2 * usize::from(count))
            .ok_or_else(|| damaged("its scan header is truncated"))?;
        let quantised = frame
            .quantisation
            .iter()
            .all(|table| has(&self.quantisation, *table));
        // The first scan of a progressive file holds only DC coefficients.
        let huffman = components.chunks_exact(2).all(|part| {
            has(&self.direct, part[1] >> 4)
                && (frame.progressive || has(&self.alternating, part[1] & 15))
        });
        if !quantised || !huffman {
            return Err(damaged(
                "it has no tables of its own, like a motion-JPEG frame; decode it and use `jpeg:q=…`",
            ));
        }
        Ok(Header {
            height: frame.height,
            width: frame.width,
            channels: frame.channels,
            single_scan: !frame.progressive && usize::from(count) == frame.channels,
        })
    }
}

fn mark(tables: &mut [bool; 4], number: u8) -> Result<()> {
    match tables.get_mut(usize::from(number)) {
        Some(table) => *table = true,
        None => return Err(damaged(format!("invalid table id {number}"))),
    }
    Ok(())
}

fn has(tables: &[bool; 4], number: u8) -> bool {
    tables.get(usize::from(number)).is_some_and(|there| *there)
}

fn damaged(what: impl Into<String>) -> CodecError {
    corrupt(NAME, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame header of three channels, 2 high and 3 wide.
    const FRAME: [u8; 19] = [
        0xff, 0xc0, 0, 17, 8, 0, 2, 0, 3, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0,
    ];

    /// A file from segments, preceded by one quantisation table and one of each Huffman table.
    fn file(segments: &[&[u8]]) -> Vec<u8> {
        let mut file = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
        file.extend([1; 64]);
        for class in [0, 0x10] {
            file.extend([0xff, 0xc4, 0, 20, class, 1]);
            file.extend([0; 15]);
            file.push(0);
        }
        file.extend(segments.concat());
        file
    }

    /// The start of a scan of these channels, with table 0.
    fn scan(channels: u8) -> Vec<u8> {
        let mut scan = vec![0xff, 0xda, 0, 6 + 2 * channels, channels];
        scan.extend((1..=channels).flat_map(|channel| [channel, 0]));
        scan.extend([0, 63, 0]);
        scan
    }

    #[test]
    fn size_channels_and_scans_are_read() {
        let header = Header::parse(&file(&[&FRAME, &scan(3)])).unwrap();
        let expected = Header {
            height: 2,
            width: 3,
            channels: 3,
            single_scan: true,
        };
        assert_eq!(header, expected);
        assert!(
            !Header::parse(&file(&[&FRAME, &scan(1)]))
                .unwrap()
                .single_scan
        );
        let mut progressive = FRAME;
        progressive[1] = 0xc2;
        let header = Header::parse(&file(&[&progressive, &scan(3)])).unwrap();
        assert!(!header.single_scan);
    }

    #[test]
    fn fill_bytes_and_comments_are_skipped() {
        let comment = [0xff, 0xff, 0xff, 0xfe, 0, 4, 0xff, 0xd9];
        assert!(Header::parse(&file(&[&comment, &FRAME, &scan(3)])).is_ok());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let file = file(&[&FRAME, &scan(3)]);
        for cut in 0..file.len() {
            assert!(Header::parse(&file[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn other_kinds_of_jpeg_are_refused() {
        for marker in [0xc3, 0xc5, 0xc9, 0xca, 0xcb, 0xcc] {
            let mut frame = FRAME;
            frame[1] = marker;
            assert!(
                Header::parse(&file(&[&frame, &scan(3)])).is_err(),
                "{marker:x}"
            );
        }
        let mut deep = FRAME;
        deep[4] = 12;
        assert!(Header::parse(&file(&[&deep, &scan(3)])).is_err());
        assert!(Header::parse(&file(&[&FRAME, &FRAME, &scan(3)])).is_err());
        assert!(Header::parse(&file(&[&scan(3)])).is_err());
    }

    #[test]
    fn a_scan_or_channel_that_uses_a_missing_table_is_refused() {
        let mut other_quantisation = FRAME;
        other_quantisation[18] = 1;
        assert!(Header::parse(&file(&[&other_quantisation, &scan(3)])).is_err());
        for table in [0x10, 0x01, 0x44] {
            let mut scan = scan(3);
            scan[6] = table;
            assert!(Header::parse(&file(&[&FRAME, &scan])).is_err(), "{table:x}");
        }
    }
}
