//! zlib, with its levels and strategies: `level=6,strategy=rle`.

use std::fmt;

use kino_codec::{CodecError, CodecSpec};
use zlib_rs::{DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status, Strategy};

use super::{Result, failed};

/// The log2 of the longest back-reference distance.
const WINDOW_BITS: u8 = 15;

/// The names of zlib's strategies.
pub(super) const STRATEGIES: [(&str, Strategy); 5] = [
    ("default", Strategy::Default),
    ("filtered", Strategy::Filtered),
    ("huffman", Strategy::HuffmanOnly),
    ("rle", Strategy::Rle),
    ("fixed", Strategy::Fixed),
];

/// How hard and in which way to compress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deflate {
    level: i32,
    name: &'static str,
    strategy: Strategy,
}

impl fmt::Display for Deflate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "level={},strategy={}", self.level, self.name)
    }
}

impl Deflate {
    pub(super) fn new(spec: &CodecSpec) -> Result<Self> {
        let level = spec.get("level").unwrap_or("6").parse().ok();
        let wanted = spec.get("strategy").unwrap_or("default");
        let strategy = STRATEGIES.into_iter().find(|(name, _)| *name == wanted);
        match (level.filter(|level| (0..=9).contains(level)), strategy) {
            (Some(level), Some((name, strategy))) => Ok(Self {
                level,
                name,
                strategy,
            }),
            _ => Err(CodecError::Parameter {
                spec: spec.to_string(),
                what: format!(
                    "`level` must be 0 to 9, `strategy` one of {}",
                    STRATEGIES.map(|(name, _)| name).join(", ")
                ),
            }),
        }
    }

    pub(super) fn compress(&self, content: &[u8]) -> Result<Vec<u8>> {
        let config = DeflateConfig {
            level: self.level,
            strategy: self.strategy,
            ..DeflateConfig::default()
        };
        let mut deflate = zlib_rs::Deflate::new_with_config(config);
        let mut page = vec![0; zlib_rs::compress_bound(content.len())];
        match deflate.compress(content, &mut page, DeflateFlush::Finish) {
            Ok(Status::StreamEnd) => {}
            Ok(_) => return Err(failed("deflate: the stream is longer than its bound")),
            Err(error) => return Err(failed(error.as_str())),
        }
        page.truncate(usize::try_from(deflate.total_out()).unwrap_or(usize::MAX));
        Ok(page)
    }
}

/// The decoder state, about 40 kB, kept from page to page.
#[derive(Default)]
pub(super) struct Inflater(Option<Inflate>);

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inflater")
    }
}

impl Inflater {
    pub(super) fn decompress(&mut self, page: &[u8], content: &mut [u8]) -> Result<()> {
        let inflate = self
            .0
            .get_or_insert_with(|| Inflate::new(true, WINDOW_BITS));
        inflate.reset(true);
        match inflate.decompress(page, content, InflateFlush::Finish) {
            Ok(Status::StreamEnd) => Ok(()),
            Ok(_) => Err(failed("deflate: the stream has another length")),
            Err(error) => Err(failed(error.as_str())),
        }
    }
}
