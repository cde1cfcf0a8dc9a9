//! The codings of video that can be carried.

use std::fmt;

use crate::spec::CodecSpec;

/// How packets of a video are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VideoCoding {
    /// AV1.
    Av1,
    /// H.264 (AVC).
    H264,
    /// H.265 (HEVC).
    Hevc,
    /// VP9.
    Vp9,
    /// MPEG-4 Part 2: what OpenCV calls `mp4v`.
    Mpeg4,
}

impl VideoCoding {
    /// Every coding.
    pub const ALL: [Self; 5] = [Self::Av1, Self::H264, Self::Hevc, Self::Vp9, Self::Mpeg4];

    /// The name in a codec string.
    pub fn name(self) -> &'static str {
        match self {
            Self::Av1 => "av1",
            Self::H264 => "h264",
            Self::Hevc => "hevc",
            Self::Vp9 => "vp9",
            Self::Mpeg4 => "mpeg4",
        }
    }

    /// The codec string that stores such packets.
    pub fn codec(self) -> String {
        format!("{}:coding={self}", super::NAME)
    }

    /// The coding of a codec string, if it is one of video.
    pub fn of_codec(text: &str) -> Option<Self> {
        let spec: CodecSpec = text.parse().ok()?;
        let coding = spec.get("coding").filter(|_| spec.name() == super::NAME)?;
        Self::parse(coding)
    }

    /// The name of FFmpeg's decoder.
    pub(super) fn ffmpeg_decoder(self) -> &'static str {
        match self {
            Self::Av1 => "libdav1d",
            other => other.name(),
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|coding| coding.name() == text)
    }
}

impl fmt::Display for VideoCoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
