//! `lz4`: the content as one LZ4 block, without a size or frame around it.
//!
//! The fastest to decode, with the lowest ratio. Uses `lz4_flex` in its safe mode, because a page is untrusted and the
//! C library decodes only 1.35 to 1.6 times as fast (docs/measurements/codecs/general.md).

use crate::error::{Result, buffer, corrupt};
use crate::general::Method;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

/// A byte of a block adds at most 255 bytes to a match.
const MAX_RATIO: usize = 255;

/// The LZ4 compressor.
#[derive(Debug)]
pub(crate) struct Lz4;

impl Method for Lz4 {
    const NAME: &'static str = "lz4";
    const PARAMETERS: &'static [&'static str] = &[];

    fn new(_spec: &CodecSpec) -> Result<Self> {
        Ok(Self)
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn compress(&self, content: &[u8], page: &mut Vec<u8>, _scratch: &mut Scratch) -> Result<()> {
        let start = page.len();
        let most = lz4_flex::block::get_maximum_output_size(content.len());
        page.resize(start + most, 0);
        let written = lz4_flex::block::compress_into(content, &mut page[start..])
            .map_err(|error| buffer(format!("lz4: {error}")))?;
        page.truncate(start + written);
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

    fn decompress(page: &[u8], content: &mut [u8], _scratch: &mut Scratch) -> Result<()> {
        let written = lz4_flex::block::decompress_into(page, content)
            .map_err(|error| corrupt(Self::NAME, error.to_string()))?;
        if written == content.len() {
            return Ok(());
        }
        Err(corrupt(
            Self::NAME,
            format!("it holds {written} bytes, expected {}", content.len()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::arbitrary_bytes;
    use proptest::prelude::*;

    /// The format's description, one byte at a time; valid blocks only.
    fn naive(block: &[u8]) -> Vec<u8> {
        let mut bytes = block.iter().map(|byte| usize::from(*byte));
        let mut out: Vec<u8> = Vec::new();
        while let Some(token) = bytes.next() {
            let length = |mut len: usize, bytes: &mut dyn Iterator<Item = usize>| {
                while len >= 15 {
                    let more = bytes.next().unwrap();
                    len += more;
                    if more < 255 {
                        break;
                    }
                }
                len
            };
            for _ in 0..length(token >> 4, &mut bytes) {
                out.push(u8::try_from(bytes.next().unwrap()).unwrap());
            }
            let Some(low) = bytes.next() else { break };
            let distance = low + 256 * bytes.next().unwrap();
            for _ in 0..length(token & 15, &mut bytes) + 4 {
                out.push(out[out.len() - distance]);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn we_write_blocks_of_the_documented_format(seed: u64, len in 0_usize..5000, mask in 0_u8..8) {
            let content: Vec<u8> = arbitrary_bytes(seed, len).iter().map(|byte| byte & mask).collect();
            let mut page = Vec::new();
            Lz4.compress(&content, &mut page, &mut Scratch::new()).unwrap();
            prop_assert_eq!(naive(&page), content);
        }
    }

    #[test]
    fn the_block_of_the_format_description_is_read() {
        // 5 literals, a match of 19 + 255 + 2 bytes at distance 5, 5 literals: written by hand.
        let block = [
            0x5f, b'a', b'b', b'c', b'd', b'e', 5, 0, 255, 2, 0x50, b'v', b'w', b'x', b'y', b'z',
        ];
        let mut got = vec![0; 5 + 276 + 5];
        Lz4::decompress(&block, &mut got, &mut Scratch::new()).unwrap();
        let expected: Vec<u8> = b"abcde"
            .iter()
            .copied()
            .cycle()
            .take(281)
            .chain(*b"vwxyz")
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn the_largest_possible_ratio_is_accepted() {
        let content = vec![0; 10 << 20];
        let mut page = Vec::new();
        Lz4.compress(&content, &mut page, &mut Scratch::new())
            .unwrap();
        assert!(Lz4::check(&page, content.len()).is_ok());
        assert!(Lz4::check(&page, content.len() * 2).is_err());
    }
}
