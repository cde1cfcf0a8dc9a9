//! The columns of an export: their description in `info.json` and in the footer of a data file.
//!
//! | stream | column | `dtype`, `shape` in `info.json` | in the footer, for Hugging Face's reader |
//! |---|---|---|---|
//! | scalar, array of one | scalar | its own, `[1]` | `Value` |
//! | array `[n]`; of 2 to 5 dimensions | lists in lists | its own | `Sequence`; `Array2D` to `Array5D` |
//! | text | text | `string`, `[1]` | `Value` |
//! | image | `{bytes, path}`; none if cameras are video files | `image` or `video`, `[height, width, channels]` | `Image` |

use kino_codec::{Dtype, FrameType, ValueType};
use kino_dataset::Kind;
use serde_json::{Map, Value, json};

use super::table::Content;
use crate::export::{Cameras, Outline, StreamOutline};

/// Columns that LeRobot fills itself, and their types.
pub(super) const OWN: [(&str, Dtype); 5] = [
    ("timestamp", Dtype::F32),
    ("frame_index", Dtype::I64),
    ("episode_index", Dtype::I64),
    ("index", Dtype::I64),
    ("task_index", Dtype::I64),
];

/// LeRobot has no type for more dimensions.
const MAX_DIMENSIONS: usize = 5;

/// Larger frames have no statistics, which would each be as large as a frame.
const MAX_ELEMENTS: usize = 1024;

/// A column of the data files.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) content: Content,
    pub(super) origin: Origin,
    dtype: &'static str,
    shape: Vec<usize>,
    /// Whether it has statistics.
    has_stats: bool,
}

/// Where the frames of a column come from, and where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// From a stream into the table.
    Stream,
    /// From a stream into video files.
    Video,
    /// LeRobot's own index columns.
    Own,
}

/// Why a stream cannot be a column.
pub(super) fn refuse(stream: &StreamOutline) -> Option<&'static str> {
    match stream.frame.as_values() {
        Some(ty) if ty.elements() == 0 => Some("has empty frames"),
        Some(ty) if ty.shape().len() > MAX_DIMENSIONS => {
            Some("has more than 5 dimensions, which LeRobot does not support")
        }
        _ => None,
    }
}

/// Height, width and channels of a stream that is written as image files.
pub(super) fn image(stream: &StreamOutline) -> Option<(usize, usize, usize)> {
    let ty = stream.frame.as_values()?;
    match (stream.kind, ty.dtype(), ty.shape()) {
        (Kind::Image, Dtype::U8, &[height, width, channels @ (1 | 3 | 4)]) => {
            Some((height, width, channels))
        }
        (Kind::Depth, Dtype::U16, &[height, width] | &[height, width, 1]) => {
            Some((height, width, 1))
        }
        _ => None,
    }
}

/// Whether a stream goes into video files: RGB images of an even size, if videos are requested.
pub(super) fn is_video(stream: &StreamOutline, cameras: &Cameras) -> bool {
    let is_even = |(height, width, channels)| height % 2 == 0 && width % 2 == 0 && channels == 3;
    matches!(cameras, Cameras::Video(_)) && image(stream).is_some_and(is_even)
}

/// All columns, in the order of their names.
pub(super) fn columns(outline: &Outline) -> Vec<Column> {
    // Every episode has the same.
    let streams = outline.episodes.first().map(|episode| &episode.streams);
    let streams = streams.into_iter().flatten();
    let mut columns: Vec<_> = streams
        .map(|stream| match is_video(stream, &outline.cameras) {
            true => Column {
                origin: Origin::Video,
                dtype: "video",
                ..Column::of(stream)
            },
            false => Column::of(stream),
        })
        .collect();
    for (name, dtype) in OWN {
        if columns.iter().all(|column| column.name != name) {
            columns.push(Column {
                name: name.to_owned(),
                content: Content::Numbers(dtype, Vec::new()),
                origin: Origin::Own,
                dtype: dtype.name(),
                shape: vec![1],
                has_stats: true,
            });
        }
    }
    columns.sort_by(|a, b| a.name.cmp(&b.name));
    columns
}

impl Column {
    fn of(stream: &StreamOutline) -> Self {
        let (content, dtype, shape) = match (&stream.frame, image(stream)) {
            (_, Some((height, width, channels))) => {
                (Content::Image, "image", vec![height, width, channels])
            }
            (FrameType::Text, _) => (Content::Text, "string", vec![1]),
            (FrameType::Values(ty), _) => (numbers(ty), ty.dtype().name(), described(ty)),
        };
        let ty = stream.frame.as_values();
        let has_stats = match content {
            // A 16-bit image has no channels to normalise.
            Content::Image => ty.is_some_and(|ty| ty.dtype() == Dtype::U8),
            // LeRobot refuses statistics of any other shape for a name containing `image`.
            _ if stream.name.contains("image") => false,
            _ => ty.is_some_and(|ty| ty.elements() <= MAX_ELEMENTS),
        };
        Self {
            name: stream.name.clone(),
            content,
            origin: Origin::Stream,
            dtype,
            shape,
            has_stats,
        }
    }

    /// The shape of its statistics, if it has any.
    pub(super) fn stats_shape(&self) -> Option<Vec<usize>> {
        self.has_stats.then(|| match self.content {
            Content::Image => vec![3, 1, 1],
            _ => self.shape.clone(),
        })
    }

    /// Its entry in `info.json`; keys of the original one stay if dtype and shape are the same.
    pub(super) fn to_info(&self, before: Option<&Value>, rate_hz: &Value) -> Value {
        let said = |key: &str| before.and_then(|before| before.get(key));
        let is_same = said("shape") == Some(&json!(self.shape));
        if let Some(before) = before
            && is_same
            && said("dtype") == Some(&json!(self.dtype))
            && self.origin != Origin::Video
        {
            return before.clone();
        }
        let names = match (said("names"), &self.content) {
            (Some(names), _) if is_same => names.clone(),
            (_, Content::Image) => json!(["height", "width", "channels"]),
            _ => Value::Null,
        };
        let mut info = json!({"dtype": self.dtype, "shape": self.shape, "names": names});
        if self.origin == Origin::Video {
            info["info"] = json!({
                "video.height": self.shape[0],
                "video.width": self.shape[1],
                "video.codec": "av1",
                "video.pix_fmt": "yuv420p",
                "video.is_depth_map": false,
                "video.fps": rate_hz,
                "video.channels": 3,
                "has_audio": false,
            });
        }
        info
    }

    fn to_footer(&self) -> Value {
        let value = json!({"dtype": self.dtype, "_type": "Value"});
        match &self.content {
            Content::Image => json!({"_type": "Image"}),
            Content::Numbers(_, shape) => match shape.as_slice() {
                [] => value,
                [len] => json!({"feature": value, "length": len, "_type": "Sequence"}),
                shape => json!({
                    "shape": shape,
                    "dtype": self.dtype,
                    "_type": format!("Array{}D", shape.len()),
                }),
            },
            Content::Text | Content::Texts => value,
        }
    }
}

/// The columns that are in the data files.
pub(super) fn in_table(columns: &[Column]) -> impl Iterator<Item = &Column> {
    let is_in = |column: &&Column| column.origin != Origin::Video;
    columns.iter().filter(is_in)
}

/// The columns that are in video files.
pub(super) fn in_videos(columns: &[Column]) -> impl Iterator<Item = &Column> {
    let is_in = |column: &&Column| column.origin == Origin::Video;
    columns.iter().filter(is_in)
}

/// What the footer of a data file says, under `huggingface`.
pub(super) fn footer(columns: &[Column]) -> (&'static str, String) {
    let columns = in_table(columns);
    let columns: Map<_, _> = columns
        .map(|column| (column.name.clone(), column.to_footer()))
        .collect();
    let about = json!({"info": {"features": columns}});
    ("huggingface", about.to_string())
}

/// An array of one value is a scalar there.
fn numbers(ty: &ValueType) -> Content {
    let shape = match ty.shape() {
        [1] => Vec::new(),
        shape => shape.to_vec(),
    };
    Content::Numbers(ty.dtype(), shape)
}

fn described(ty: &ValueType) -> Vec<usize> {
    match ty.shape() {
        [] => vec![1],
        shape => shape.to_vec(),
    }
}
