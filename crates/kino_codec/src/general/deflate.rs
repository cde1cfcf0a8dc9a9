//! `deflate`: the content as one zlib stream (RFC 1950), with zlib's strategies.
//!
//! ```text
//! page = | CMF FLG | deflate blocks … | adler32 of the content, big-endian |
//! ```
//!
//! For classic comparisons on your own data; `zstd` is about as small and several times
//! as fast. Uses `zlib-rs`, which needs no C compiler; libdeflate is only 1.1 to 1.7 times faster
//! (docs/measurements/codecs/general.md).

use std::fmt;

use zlib_rs::{DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status, Strategy};

use crate::error::{Result, buffer, corrupt};
use crate::general::Method;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

/// zlib's own default.
const DEFAULT_LEVEL: i32 = 6;

/// Two bits, a length and a distance, repeat at most 258 bytes.
const MAX_RATIO: usize = 258 * 4;

/// The log2 of the longest back-reference distance a stream may use.
const WINDOW_BITS: u8 = 15;

/// The names of zlib's strategies.
const STRATEGIES: [(&str, Strategy); 5] = [
    ("default", Strategy::Default),
    ("filtered", Strategy::Filtered),
    ("huffman", Strategy::HuffmanOnly),
    ("rle", Strategy::Rle),
    ("fixed", Strategy::Fixed),
];

/// The deflate compressor.
#[derive(Debug)]
pub(crate) struct Deflate {
    level: i32,
    strategy: (&'static str, Strategy),
}

impl Method for Deflate {
    const NAME: &'static str = "deflate";
    const PARAMETERS: &'static [&'static str] = &["level", "strategy"];

    fn new(spec: &CodecSpec) -> Result<Self> {
        let level = spec.integer("level", 0..=9, DEFAULT_LEVEL)?;
        let name = spec.get("strategy").unwrap_or("default");
        let strategy = STRATEGIES
            .into_iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| {
                let known = STRATEGIES.map(|(name, _)| name).join(", ");
                spec.error(format!("`strategy` must be one of {known}"))
            })?;
        Ok(Self { level, strategy })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![
            ("level", self.level.to_string()),
            ("strategy", self.strategy.0.to_owned()),
        ]
    }

    fn compress(&self, content: &[u8], page: &mut Vec<u8>, _scratch: &mut Scratch) -> Result<()> {
        let config = DeflateConfig {
            level: self.level,
            strategy: self.strategy.1,
            ..DeflateConfig::default()
        };
        let mut deflate = zlib_rs::Deflate::new_with_config(config);
        let start = page.len();
        page.resize(start + zlib_rs::compress_bound(content.len()), 0);
        match deflate.compress(content, &mut page[start..], DeflateFlush::Finish) {
            Ok(Status::StreamEnd) => {}
            Ok(_) => return Err(buffer("deflate: the stream is longer than its bound")),
            Err(error) => return Err(buffer(format!("deflate: {}", error.as_str()))),
        }
        page.truncate(start + len(deflate.total_out()));
        Ok(())
    }

    fn check(page: &[u8], expected: usize) -> Result<()> {
        if expected / MAX_RATIO <= page.len() {
            return Ok(());
        }
        Err(corrupt(
            Self::NAME,
            format!(
                "{} compressed bytes cannot hold {expected} bytes",
                page.len()
            ),
        ))
    }

    fn decompress(page: &[u8], content: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        let inflate = scratch.inflater.ready();
        let status = inflate
            .decompress(page, content, InflateFlush::Finish)
            .map_err(|error| corrupt(Self::NAME, format!("zlib: {}", error.as_str())))?;
        if status != Status::StreamEnd {
            return Err(corrupt(
                Self::NAME,
                format!(
                    "it is not one complete zlib stream of {} bytes",
                    content.len()
                ),
            ));
        }
        if len(inflate.total_in()) != page.len() || len(inflate.total_out()) != content.len() {
            return Err(corrupt(
                Self::NAME,
                format!(
                    "the stream ended at {} bytes of input and {} of output, expected {} and {}",
                    inflate.total_in(),
                    inflate.total_out(),
                    page.len(),
                    content.len()
                ),
            ));
        }
        Ok(())
    }
}

/// The decoder state, about 40 kB, kept from page to page.
#[derive(Default)]
pub(crate) struct Inflater(Option<Inflate>);

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inflater")
    }
}

impl Inflater {
    /// The state, reset to the start of a stream.
    fn ready(&mut self) -> &mut Inflate {
        let inflate = self
            .0
            .get_or_insert_with(|| Inflate::new(true, WINDOW_BITS));
        inflate.reset(true);
        inflate
    }
}

/// The length of a slice as the library's integer type, which always fits.
fn len(total: u64) -> usize {
    usize::try_from(total).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::arbitrary_bytes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn another_library_reads_what_we_write(
            seed: u64, len in 0_usize..5000, mask in 0_u8..8, level in 0..=9, strategy in 0_usize..5,
        ) {
            let content: Vec<u8> = arbitrary_bytes(seed, len).iter().map(|byte| byte & mask).collect();
            let codec = Deflate { level, strategy: STRATEGIES[strategy] };
            let mut page = Vec::new();
            codec.compress(&content, &mut page, &mut Scratch::new()).unwrap();
            prop_assert_eq!(miniz_oxide::inflate::decompress_to_vec_zlib(&page).unwrap(), content);
        }
    }

    /// `zlib.compress(b"kinograph " * 9, 9)` in Python.
    const FROM_PYTHON: [u8; 21] = [
        0x78, 0xda, 0xcb, 0xce, 0xcc, 0xcb, 0x4f, 0x2f, 0x4a, 0x2c, 0xc8, 0x50, 0xc8, 0xa6, 0x32,
        0x0b, 0x00, 0x44, 0xac, 0x22, 0xfc,
    ];

    #[test]
    fn a_stream_written_by_zlib_is_read() {
        let mut got = [0; 90];
        Deflate::decompress(&FROM_PYTHON, &mut got, &mut Scratch::new()).unwrap();
        assert_eq!(got.as_slice(), b"kinograph ".repeat(9));
    }

    #[test]
    fn a_preset_dictionary_is_refused() {
        // CMF 78, FLG with FDICT, a dictionary's checksum, an empty block.
        let page = [0x78, 0xbb, 0, 0, 0, 1, 0x03, 0x00, 0, 0, 0, 1];
        assert!(Deflate::decompress(&page, &mut [0; 4], &mut Scratch::new()).is_err());
    }

    #[test]
    fn the_largest_possible_ratio_is_accepted() {
        let content = vec![0; 10 << 20];
        let mut page = Vec::new();
        let codec = Deflate::new(&"deflate:level=9".parse().unwrap()).unwrap();
        codec
            .compress(&content, &mut page, &mut Scratch::new())
            .unwrap();
        assert!(Deflate::check(&page, content.len()).is_ok());
        assert!(Deflate::check(&page, content.len() * 2).is_err());
    }
}
