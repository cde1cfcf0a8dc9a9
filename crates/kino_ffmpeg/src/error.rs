//! What can go wrong with FFmpeg.

/// A result of this crate.
pub type Result<T, E = FfmpegError> = std::result::Result<T, E>;

/// Why FFmpeg cannot be used, or what it says about a video.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FfmpegError {
    /// There is no FFmpeg, or one that cannot be used.
    #[error("FFmpeg cannot be used ({what}); {advice}")]
    Unavailable {
        /// What was tried.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// This FFmpeg was built without a codec.
    #[error("this FFmpeg ({version}) cannot {does}; `pip install av` brings one that can")]
    Missing {
        /// `encode AV1 with SVT-AV1`.
        does: String,
        /// The version of libavcodec.
        version: String,
    },
    /// A call failed.
    #[error("FFmpeg {what}: {reason}")]
    Failed {
        /// `cannot decode a packet`.
        what: &'static str,
        /// FFmpeg's own text.
        reason: String,
    },
}
