//! `zstd`: the content as one zstd frame that states its size.
//!
//! Nearly always the right general codec: about as small as `deflate` and several times as fast.

use crate::error::Result;
use crate::general::Method;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;
use crate::zstd_frame::{Effort, LEVELS, check_frame};

/// Fast to decode and within a few percent of the slow levels on the streams we measured.
const DEFAULT_LEVEL: i32 = 3;

/// The zstd compressor.
#[derive(Debug)]
pub(crate) struct Zstd {
    level: i32,
}

impl Method for Zstd {
    const NAME: &'static str = "zstd";
    const PARAMETERS: &'static [&'static str] = &["level"];

    fn new(spec: &CodecSpec) -> Result<Self> {
        let level = spec.integer("level", LEVELS, DEFAULT_LEVEL)?;
        Ok(Self { level })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![("level", self.level.to_string())]
    }

    fn compress(&self, content: &[u8], page: &mut Vec<u8>, scratch: &mut Scratch) -> Result<()> {
        scratch
            .zstd
            .compress(Effort::level(self.level), content, page)
    }

    fn check(page: &[u8], expected: usize) -> Result<()> {
        check_frame(Self::NAME, page, expected)
    }

    fn decompress(page: &[u8], content: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        scratch.zstd.decompress(Self::NAME, page, content)
    }
}
