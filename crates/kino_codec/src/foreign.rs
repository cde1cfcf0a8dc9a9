//! Codecs that are not part of this library, such as a Python class, and which of them this process has.
//!
//! ```text
//! external:name=webp-80 ─▶ find("webp-80") ─▶ registered in this process, or found by the source ─▶ encode, decode
//!                                           └▶ neither: an error that names it
//! ```
//!
//! They are registered per process, because a dataset holds names and never code. The source (`kinograph/_foreign.py`)
//! is asked only for names that are not registered yet, so a package with a codec is not imported before it is needed.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::sync::Arc;

use kino_sync::RwLock;

use crate::codec::Page;
use crate::error::{CodecError, Result};
use crate::frame::ValueType;

/// The longest name.
const MAX_NAME: usize = 64;

/// What a missing codec needs.
const HOW: &str = "is not registered in this process; register it with `kinograph.register_codec`, or name its class \
                   in the variable KINOGRAPH_CODECS=package.module:Class";

/// A codec from outside. Errors are texts that continue "foreign codec `x` …".
///
/// What it returns is not trusted: [`encode`](Self::encode) is checked by decoding, and
/// [`decode`](Self::decode) must refuse values of another type or number than `dest` holds.
pub trait ForeignCodec: Debug + Send + Sync {
    /// Its name: 1 to 64 of `a–z 0–9 . + -`.
    fn name(&self) -> &str;

    /// What encodes, with its version, for the records of a dataset.
    fn version(&self) -> Option<&str> {
        None
    }

    /// The most frames of a page.
    fn page_frames(&self) -> NonZeroUsize {
        NonZeroUsize::MIN
    }

    /// Whether every bit comes back, according to the codec. Every page is compared when it is packed.
    fn is_lossless(&self) -> bool {
        false
    }

    /// Whether it can store such frames.
    fn suits(&self, frame: &ValueType) -> Result<bool, String>;

    /// Encodes packed frames to the bytes of a page.
    fn encode(&self, frame: &ValueType, values: &[u8]) -> Result<Vec<u8>, String>;

    /// Decodes a page (untrusted bytes) into `dest`, which has exactly the size of its frames, packed.
    fn decode(&self, frame: &ValueType, page: Page<'_>, dest: &mut [u8]) -> Result<(), String>;
}

/// Where codecs are found that were not registered.
pub trait ForeignCodecs: Debug + Send + Sync {
    /// The codec of this name, if there is one; an error if it cannot be loaded.
    fn find(&self, name: &str) -> Result<Option<Arc<dyn ForeignCodec>>, String>;

    /// The names that are worth a comparison.
    fn names(&self) -> Vec<String>;
}

/// The codecs of this process.
#[derive(Debug)]
struct Known {
    codecs: Vec<Arc<dyn ForeignCodec>>,
    source: Option<Arc<dyn ForeignCodecs>>,
}

static KNOWN: RwLock<Known> = RwLock::new(Known {
    codecs: Vec::new(),
    source: None,
});

/// Registers a codec in this process, in place of one of the same name.
pub fn add_foreign_codec(codec: Arc<dyn ForeignCodec>) -> Result<()> {
    check_name(codec.name()).map_err(|what| error(codec.name(), what))?;
    let mut known = KNOWN.write();
    known.codecs.retain(|one| one.name() != codec.name());
    known.codecs.push(codec);
    Ok(())
}

/// Sets where codecs are found that are not registered.
pub fn set_foreign_codecs(source: Arc<dyn ForeignCodecs>) {
    KNOWN.write().source = Some(source);
}

/// Rejects names that a codec string cannot have.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_known = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'+' | b'-');
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_known) {
        return Ok(());
    }
    Err(format!(
        "has an invalid name; use 1 to {MAX_NAME} of `a-z 0-9 . + -`, such as `webp-80`"
    ))
}

/// The codec of this name.
pub(crate) fn find(name: &str) -> Result<Arc<dyn ForeignCodec>> {
    let source = {
        let known = KNOWN.read();
        if let Some(found) = known.codecs.iter().find(|one| one.name() == name) {
            return Ok(Arc::clone(found));
        }
        known.source.clone()
    };
    // Not under the lock: the source runs Python, which may register codecs itself.
    let found = source.map_or(Ok(None), |source| source.find(name));
    match found.map_err(|what| error(name, what))? {
        Some(codec) if codec.name() == name => {
            add_foreign_codec(Arc::clone(&codec))?;
            Ok(codec)
        }
        _ => Err(error(name, HOW)),
    }
}

/// Every codec that this process has or can find, in order of their names. Those that cannot be loaded are left out.
pub(crate) fn all() -> Vec<Arc<dyn ForeignCodec>> {
    let (registered, source) = {
        let known = KNOWN.read();
        (known.codecs.clone(), known.source.clone())
    };
    let mut names: Vec<String> = registered
        .iter()
        .map(|one| one.name().to_owned())
        .chain(source.iter().flat_map(|source| source.names()))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.iter().filter_map(|name| find(name).ok()).collect()
}

/// An error about a foreign codec.
pub(crate) fn error(name: &str, what: impl Into<String>) -> CodecError {
    CodecError::Foreign {
        name: name.to_owned(),
        what: what.into(),
    }
}
