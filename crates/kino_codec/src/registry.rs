//! Which codecs there are: the one table from names to code.

use std::sync::Arc;

use crate::codec::Codec;
use crate::error::{CodecError, Result};
use crate::raw::Raw;
use crate::spec::CodecSpec;

/// One row of the registry.
#[derive(Debug, Clone, Copy)]
pub struct CodecEntry {
    /// The name in the codec's text.
    pub name: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// Makes the codec from its parsed text.
    make: fn(&CodecSpec) -> Result<Arc<dyn Codec>>,
}

/// Every codec of this library. A name, once here, keeps its meaning for ever (spec/compatibility.md).
const CODECS: &[CodecEntry] = &[CodecEntry {
    name: "raw",
    summary: "the values as they are",
    make: |spec| Ok(Arc::new(Raw::new(spec)?)),
}];

/// The codecs this library knows, for help texts and tables.
pub fn codecs() -> &'static [CodecEntry] {
    CODECS
}

/// The codec that `text` names.
///
/// ```
/// let codec = kino_codec::codec("raw")?;
/// assert_eq!(codec.spec().to_string(), "raw");
/// # Ok::<(), kino_codec::CodecError>(())
/// ```
pub fn codec(text: &str) -> Result<Arc<dyn Codec>> {
    let spec: CodecSpec = text.parse()?;
    match CODECS.iter().find(|entry| entry.name == spec.name()) {
        Some(entry) => (entry.make)(&spec),
        None => {
            let known: Vec<_> = CODECS.iter().map(|entry| entry.name).collect();
            Err(CodecError::Unknown {
                name: spec.name().to_owned(),
                known: known.join(", "),
            })
        }
    }
}
