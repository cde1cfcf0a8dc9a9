//! The foreign codec of the golden files, of pages and of whole datasets: every byte inverted.

use kino_codec::{ForeignCodec, Page, ValueType};

/// The codec.
#[derive(Debug)]
pub(crate) struct Inverted;

/// Every byte inverted.
pub(crate) fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

impl ForeignCodec for Inverted {
    fn name(&self) -> &'static str {
        "golden"
    }

    fn suits(&self, _: &ValueType) -> Result<bool, String> {
        Ok(true)
    }

    fn encode(&self, _: &ValueType, values: &[u8]) -> Result<Vec<u8>, String> {
        Ok(inverted(values))
    }

    fn decode(&self, _: &ValueType, page: Page<'_>, dest: &mut [u8]) -> Result<(), String> {
        let values = inverted(page.bytes);
        if values.len() != dest.len() {
            return Err("has a page of another size".to_owned());
        }
        dest.copy_from_slice(&values);
        Ok(())
    }
}
