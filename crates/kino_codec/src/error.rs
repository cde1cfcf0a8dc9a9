//! What can go wrong between frames and bytes.

/// The result type of this crate.
pub type Result<T, E = CodecError> = std::result::Result<T, E>;

/// An error of a codec: damaged bytes, or a request the codec cannot serve.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes of a page (or of a run's shared part) are not what the codec wrote.
    #[error("`{codec}` page is damaged: {what}")]
    Corrupt {
        /// The codec that was asked to decode.
        codec: &'static str,
        /// What is wrong with the bytes.
        what: String,
    },
    /// The codec's name is not in the registry.
    #[error(
        "unknown codec `{name}`; this library has {known}; upgrade `kinograph` to read newer datasets"
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names, for the message.
        known: String,
    },
    /// A codec that only development versions stored.
    #[error(
        "codec `{name}` is not supported: only development versions before 1.0 stored it; pack the recording again with {instead}"
    )]
    Retired {
        /// The codec's name, or its string if the name has other parameters that are supported.
        name: String,
        /// What to use instead.
        instead: String,
    },
    /// A codec parameter is missing, misspelled or out of range.
    #[error("codec `{spec}`: {what}")]
    Parameter {
        /// The codec string as passed.
        spec: String,
        /// What is wrong with it and what is valid.
        what: String,
    },
    /// The codec cannot store frames of this type.
    #[error("codec `{codec}` cannot store frames of type {frame}: {what}")]
    Unsuited {
        /// The codec's name.
        codec: &'static str,
        /// The type of the frames.
        frame: String,
        /// Why not, and which codec to use instead.
        what: String,
    },
    /// A library that the codec needs at run time is missing or failed.
    #[error("codec `{codec}` cannot be used here: {what}")]
    Unavailable {
        /// The codec's name.
        codec: &'static str,
        /// What is missing, and how to get it.
        what: String,
    },
    /// A codec that is not part of this library is missing or failed.
    #[error("foreign codec `{name}` {what}")]
    Foreign {
        /// Its name.
        name: String,
        /// What happened, and what to do.
        what: String,
    },
    /// A frame type that the format does not allow.
    #[error("invalid frame type: {what}")]
    FrameType {
        /// Which limit it breaks.
        what: String,
    },
    /// The caller's buffer, stride or range does not fit the request.
    #[error("invalid buffer: {what}")]
    Buffer {
        /// What does not fit.
        what: String,
    },
}

/// A `Corrupt` error of `codec`.
pub(crate) fn corrupt(codec: &'static str, what: impl Into<String>) -> CodecError {
    CodecError::Corrupt {
        codec,
        what: what.into(),
    }
}

/// A `Buffer` error.
pub(crate) fn buffer(what: impl Into<String>) -> CodecError {
    CodecError::Buffer { what: what.into() }
}
