//! Frames as standard ROS 2 messages, in CDR.
//!
//! | frames | message |
//! |---|---|
//! | packets of video, in the order in which they are shown | `foxglove_msgs/msg/CompressedVideo` (`video.rs`) |
//! | image files | `sensor_msgs/msg/CompressedImage`: the stored JPEG file, or PNG |
//! | depth in float32 | `sensor_msgs/msg/Image`, `32FC1` |
//! | numeric | `std_msgs/msg/Float64MultiArray` and the like for each dtype; bool as `UInt8MultiArray` |
//! | text | `std_msgs/msg/String` |
//!
//! The arrays keep every bit and the shape (`layout`). A `JointState` would hold float64 only, and three lists of one
//! length; JSON has no NaN. What an array has no field for, such as element names and unit, is in the metadata.

use kino_codec::{Dtype, FrameType, VideoCoding};
use kino_dataset::Kind;

use super::video;
use crate::export::{ImageForm, StreamOutline};

/// The message type of a stream's frames.
pub(super) enum Message {
    Video(VideoCoding),
    Files(ImageForm),
    /// Raw images of float32: height and width.
    Raw(u32, u32),
    /// Arrays, with the header before the values of each.
    Array {
        name: &'static str,
        number: &'static str,
        head: Vec<u8>,
    },
    Text,
}

impl Message {
    /// The message type of a stream's frames, or why no message can hold them.
    pub(super) fn of(stream: &StreamOutline) -> Result<Self, &'static str> {
        if let Some(coding) = stream.video {
            return Ok(Self::Video(coding));
        }
        if let Some(form) = stream.image_form() {
            return Ok(Self::Files(form));
        }
        let FrameType::Values(ty) = &stream.frame else {
            return Ok(Self::Text);
        };
        let side = |len: usize| u32::try_from(len).map_err(|_| "is larger than a message");
        match *ty.shape() {
            [height, width] | [height, width, 1]
                if ty.dtype() == Dtype::F32 && stream.kind == Kind::Depth && ty.elements() > 0 =>
            {
                return Ok(Self::Raw(side(height)?, side(width)?));
            }
            _ => {}
        }
        let (name, number) = match ty.dtype() {
            Dtype::F16 => return Err("is float16, which no message type supports"),
            Dtype::F32 => ("Float32MultiArray", "float32"),
            Dtype::F64 => ("Float64MultiArray", "float64"),
            Dtype::I8 => ("Int8MultiArray", "int8"),
            Dtype::I16 => ("Int16MultiArray", "int16"),
            Dtype::I32 => ("Int32MultiArray", "int32"),
            Dtype::I64 => ("Int64MultiArray", "int64"),
            Dtype::Bool | Dtype::U8 => ("UInt8MultiArray", "uint8"),
            Dtype::U16 => ("UInt16MultiArray", "uint16"),
            Dtype::U32 => ("UInt32MultiArray", "uint32"),
            Dtype::U64 => ("UInt64MultiArray", "uint64"),
        };
        if ty.elements() == 0 {
            return Err("has empty frames");
        }
        let mut head = Cdr::new();
        head.u32(side(ty.shape().len())?);
        for (axis, len) in ty.shape().iter().enumerate() {
            head.text("");
            head.u32(side(*len)?);
            head.u32(side(ty.shape()[axis..].iter().product())?);
        }
        head.u32(0);
        head.u32(side(ty.elements())?);
        head.align(ty.dtype().size());
        Ok(Self::Array {
            name,
            number,
            head: head.0,
        })
    }

    /// The name of the message type and its definition, with all dependencies.
    pub(super) fn schema(&self) -> (String, String) {
        const STAMP: &str = "builtin_interfaces/Time stamp\nstring frame_id";
        const TIME: &str = "int32 sec\nuint32 nanosec";
        let with = |own: &str, needed: &[(&str, &str)]| {
            let line = "=".repeat(80);
            let parts = needed
                .iter()
                .map(|(name, text)| format!("\n{line}\nMSG: {name}\n{text}"));
            format!("{own}{}", parts.collect::<String>())
        };
        let header = [
            ("std_msgs/Header", STAMP),
            ("builtin_interfaces/Time", TIME),
        ];
        match self {
            Self::Video(_) => {
                let own = "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format";
                let time = [("builtin_interfaces/Time", TIME)];
                (
                    "foxglove_msgs/msg/CompressedVideo".to_owned(),
                    with(own, &time),
                )
            }
            Self::Files(_) => {
                let own = "std_msgs/Header header\nstring format\nuint8[] data";
                (
                    "sensor_msgs/msg/CompressedImage".to_owned(),
                    with(own, &header),
                )
            }
            Self::Raw(..) => {
                let own = "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\n\
                           uint8 is_bigendian\nuint32 step\nuint8[] data";
                ("sensor_msgs/msg/Image".to_owned(), with(own, &header))
            }
            Self::Array { name, number, .. } => {
                let own = format!("std_msgs/MultiArrayLayout layout\n{number}[] data");
                let layout = "std_msgs/MultiArrayDimension[] dim\nuint32 data_offset";
                let dimension = "string label\nuint32 size\nuint32 stride";
                let needed = [
                    ("std_msgs/MultiArrayLayout", layout),
                    ("std_msgs/MultiArrayDimension", dimension),
                ];
                (format!("std_msgs/msg/{name}"), with(&own, &needed))
            }
            Self::Text => ("std_msgs/msg/String".to_owned(), "string data".to_owned()),
        }
    }

    /// A frame as a message: values, a file, video or text.
    pub(super) fn encode(&self, topic: &str, time_ns: u64, frame: &[u8]) -> Vec<u8> {
        let mut cdr = Cdr::new();
        match self {
            Self::Array { head, .. } => cdr.0.clone_from(head),
            Self::Text => {
                cdr.u32(length(frame.len() + 1));
                cdr.0.extend_from_slice(frame);
                cdr.0.push(0);
                return cdr.0;
            }
            Self::Video(coding) => {
                cdr.header(topic, time_ns);
                cdr.u32(length(frame.len()));
                cdr.0.extend_from_slice(frame);
                cdr.text(video::format(*coding).unwrap_or_default());
                return cdr.0;
            }
            Self::Files(form) => {
                cdr.header(topic, time_ns);
                cdr.text(match form {
                    ImageForm::Jpeg(_) => "jpeg",
                    ImageForm::Png(_) => "png",
                });
                cdr.u32(length(frame.len()));
            }
            Self::Raw(height, width) => {
                cdr.header(topic, time_ns);
                cdr.u32(*height);
                cdr.u32(*width);
                cdr.text("32FC1");
                cdr.0.push(0);
                cdr.u32(width.saturating_mul(4));
                cdr.u32(length(frame.len()));
            }
        }
        cdr.0.extend_from_slice(frame);
        cdr.0
    }
}

/// A frame is far below 4 GiB: a dataset refuses larger ones.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// A message being encoded; the first four bytes mark it as little-endian.
struct Cdr(Vec<u8>);

impl Cdr {
    fn new() -> Self {
        Self(vec![0, 1, 0, 0])
    }

    fn align(&mut self, size: usize) {
        let done = self.0.len() - 4;
        self.0.resize(4 + done.next_multiple_of(size), 0);
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u32(length(text.len() + 1));
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    /// A stamp and the topic as `frame_id`; a time that a stamp cannot represent is zero: the log time has it.
    fn header(&mut self, topic: &str, time_ns: u64) {
        let seconds = i32::try_from(time_ns / 1_000_000_000);
        let rest = u32::try_from(time_ns % 1_000_000_000).unwrap_or(0);
        let (seconds, rest) = seconds.map_or((0, 0), |seconds| (seconds, rest));
        self.0.extend(seconds.to_le_bytes());
        self.u32(rest);
        self.text(topic);
    }
}
