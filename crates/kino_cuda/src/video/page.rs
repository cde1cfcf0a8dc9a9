//! A page of video as the host has it.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::images::{ImageMemory, ResizeTables};
use crate::nvcuvid::VideoCodec;

/// Frames of a page of video, which are decoded together: RGB.
pub trait VideoPage: Debug + Send + Sync + 'static {
    /// How its packets are coded.
    fn codec(&self) -> VideoCodec;

    /// Its packets; the text of an error says what is wrong with them.
    fn packets(&self) -> Result<VideoPackets, String>;

    /// Height and width of the frames.
    fn stored(&self) -> (usize, usize);

    /// How the decoded pixels become those that are kept; `None`: as they are.
    fn resize(&self) -> Option<&Arc<ResizeTables>>;

    /// The frames of the page that are kept; never empty.
    fn frames(&self) -> Range<usize>;

    /// Those frames, one behind the other, decoded and resized by the CPU: for pages that the device cannot decode, and to compare the
    /// two.
    fn decode(&self) -> Result<Vec<u8>, String>;

    /// Where one of those frames is kept on the device, once it is there; the first has the number 0.
    fn place(&self, kept: usize) -> &OnceLock<ImageMemory>;
}

/// The packets that the frames of a page need, as an elementary stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoPackets {
    /// All packets.
    pub bytes: Vec<u8>,
    /// In the order in which they are decoded, each one picture. Frames of a group come behind those of earlier groups.
    pub packets: Vec<VideoPacket>,
    /// What makes RGB of planes: luma, black, red of V, green of U, green of V, blue of U.
    pub factors: [i16; 6],
}

/// One of the packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoPacket {
    /// Its place in the bytes.
    pub range: Range<usize>,
    /// Which frame of the page it shows; `None` if its image is not shown.
    pub frame: Option<usize>,
    /// Whether it can be decoded without those before it.
    pub starts_group: bool,
}
