//! What can be wrong with the bytes of a shard.

/// The result of reading or writing a shard.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

/// An error in a shard's bytes, or in a writer's input.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The file ends before a part that it must have.
    #[error("shard is truncated: {part} needs {need} bytes, but there are {have}")]
    Truncated {
        /// The part that is truncated.
        part: &'static str,
        /// Bytes it needs.
        need: u64,
        /// Bytes available.
        have: u64,
    },
    /// The file does not start or end like a shard.
    #[error("not a Kinograph shard: wrong magic bytes in the {part}")]
    Magic {
        /// Header or footer.
        part: &'static str,
    },
    /// The file was written for a newer reader.
    #[error(
        "shard needs a reader of format version {found}, this library reads up to {supported}; upgrade `kinograph` to read it"
    )]
    TooNew {
        /// The lowest reader version that may read the file.
        found: u16,
        /// The highest this library knows.
        supported: u16,
    },
    /// A part's bytes do not match their checksum.
    #[error(
        "{part} at bytes {start}..{end} is damaged: checksum {stored:08x}, computed {computed:08x}"
    )]
    Checksum {
        /// Which part: header, footer, schema, directory, index, page.
        part: String,
        /// First byte of the part.
        start: u64,
        /// One past its last byte.
        end: u64,
        /// The checksum in the file.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A part's checksum is correct but its contents contradict each other or break a limit.
    #[error("{part} is invalid: {what}")]
    Invalid {
        /// Which part.
        part: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A frame type or codec string in the schema is invalid or unknown.
    #[error("stream `{stream}` of the schema is invalid")]
    Stream {
        /// The stream's name.
        stream: String,
        /// Why.
        #[source]
        source: kino_codec::CodecError,
    },
    /// The input of a writer exceeds what the format can hold.
    #[error("cannot write shard: {what}")]
    Limit {
        /// Which limit, and the value.
        what: String,
    },
}

/// An `Invalid` error about `part`.
pub(crate) fn invalid(part: &'static str, what: impl Into<String>) -> FormatError {
    FormatError::Invalid {
        part,
        what: what.into(),
    }
}

/// A `Limit` error.
pub(crate) fn limit(what: impl Into<String>) -> FormatError {
    FormatError::Limit { what: what.into() }
}
