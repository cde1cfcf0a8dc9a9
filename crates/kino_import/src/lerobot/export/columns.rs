//! The columns of an export: their description in `info.json` and in the footer of a data file.
//!
//! | stream | column | `dtype`, `shape` in `info.json` | in the footer, for Hugging Face's reader |
//! |---|---|---|---|
//! | scalar, array of one | scalar | its own, `[1]` | `Value` |
//! | array `[n]`; of 2 to 5 dimensions | lists in lists | its own | `Sequence`; `Array2D` to `Array5D` |
//! | text | text | `string`, `[1]` | `Value` |
//! | image | `{bytes, path}`; none if cameras are video files | `image` or `video`, `[height, width, channels]` | `Image` |

use kino_codec::{Dtype, FrameType, VideoCoding};
use kino_dataset::Kind;
use kino_parquet::{Field, Form};
use serde_json::{Map, Value, json};

use super::table::field;
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
    pub(super) form: Form,
    /// The lengths of its lists in the table; empty for a scalar.
    pub(super) lists: Vec<usize>,
    pub(super) origin: Origin,
    /// As `info.json` has them.
    dtype: &'static str,
    shape: Vec<usize>,
    has_stats: bool,
}

/// Where the frames of a column come from, and where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// From a stream into the table.
    Stream,
    /// From a stream into video files, which are encoded.
    Video,
    /// From a stream that stores packets of video into video files, as they are.
    Packets(VideoCoding),
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

/// The size of the images of a stream that is written as image files.
pub(super) fn image(stream: &StreamOutline) -> Option<ImageSize> {
    let ty = stream.frame.as_values()?;
    let (height, width, channels) = match (stream.kind, ty.dtype(), ty.shape()) {
        (Kind::Image, Dtype::U8, &[height, width, channels @ (1 | 3 | 4)]) => {
            (height, width, channels)
        }
        (Kind::Depth, Dtype::U16, &[height, width] | &[height, width, 1]) => (height, width, 1),
        _ => return None,
    };
    Some(ImageSize {
        height,
        width,
        channels,
    })
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ImageSize {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

/// Whether a stream is encoded as video files: RGB images of an even size, if videos are requested.
pub(super) fn is_encoded(stream: &StreamOutline, cameras: &Cameras) -> bool {
    let is_even = |size: ImageSize| {
        size.height.is_multiple_of(2) && size.width.is_multiple_of(2) && size.channels == 3
    };
    matches!(cameras, Cameras::Video(_)) && image(stream).is_some_and(is_even)
}

/// The coding of a stream whose packets are written as they are: those of every episode must be coded alike.
pub(super) fn packets(stream: &StreamOutline, outline: &Outline) -> Option<VideoCoding> {
    let coding = stream.video?;
    let mut all = outline.episodes.iter().flat_map(|one| &one.streams);
    let is_wanted = !matches!(outline.cameras, Cameras::Images);
    let is_alike = all.all(|other| other.name != stream.name || other.video == Some(coding));
    (is_wanted && is_alike && image(stream).is_some()).then_some(coding)
}

/// All columns, in the order of their names.
pub(super) fn columns(outline: &Outline) -> Vec<Column> {
    // Every episode has the same.
    let streams = outline.episodes.first().map(|episode| &episode.streams);
    let streams = streams.into_iter().flatten();
    let mut columns: Vec<_> = streams
        .map(|stream| {
            let mut column = Column::of(stream);
            if let Some(coding) = packets(stream, outline) {
                (column.origin, column.dtype) = (Origin::Packets(coding), "video");
            } else if is_encoded(stream, &outline.cameras) {
                (column.origin, column.dtype) = (Origin::Video, "video");
            }
            column
        })
        .collect();
    for (name, dtype) in OWN {
        if columns.iter().all(|column| column.name != name) {
            columns.push(Column {
                name: name.to_owned(),
                form: Form::scalar(dtype),
                lists: Vec::new(),
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
        let ty = stream.frame.as_values();
        // An array of one value is a scalar there.
        let lists = ty.map_or(&[][..], |ty| ty.shape());
        let lists = if lists == [1] { &[] } else { lists };
        let (form, dtype, shape) = match (&stream.frame, image(stream)) {
            (_, Some(size)) => {
                let shape = vec![size.height, size.width, size.channels];
                (Form::Image, "image", shape)
            }
            (FrameType::Text, _) => (Form::Text, "string", vec![1]),
            (FrameType::Values(ty), _) => {
                let (dtype, depth) = (ty.dtype(), lists.len());
                let shape = if lists.is_empty() { &[1] } else { lists };
                (Form::Numbers { dtype, depth }, dtype.name(), shape.to_vec())
            }
        };
        let has_stats = match form {
            // A 16-bit image has no channels to normalise.
            Form::Image => ty.is_some_and(|ty| ty.dtype() == Dtype::U8),
            // LeRobot refuses statistics of any other shape for a name containing `image`.
            _ if stream.name.contains("image") => false,
            _ => ty.is_some_and(|ty| ty.elements() <= MAX_ELEMENTS),
        };
        Self {
            name: stream.name.clone(),
            form,
            lists: lists.to_vec(),
            origin: Origin::Stream,
            dtype,
            shape,
            has_stats,
        }
    }

    /// Whether its frames are in video files.
    fn is_video(&self) -> bool {
        matches!(self.origin, Origin::Video | Origin::Packets(_))
    }

    /// Its column of a data file.
    pub(super) fn to_field(&self) -> Field {
        field(&self.name, self.form)
    }

    /// The shape of its statistics, if it has any.
    pub(super) fn stats_shape(&self) -> Option<Vec<usize>> {
        self.has_stats.then(|| match self.form {
            Form::Image => vec![3, 1, 1],
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
        let names = match (said("names"), self.form) {
            (Some(names), _) if is_same => names.clone(),
            (_, Form::Image) => json!(["height", "width", "channels"]),
            _ => Value::Null,
        };
        let mut info = json!({"dtype": self.dtype, "shape": self.shape, "names": names});
        let coding = match self.origin {
            Origin::Video => Some(VideoCoding::Av1),
            Origin::Packets(coding) => Some(coding),
            Origin::Stream | Origin::Own => None,
        };
        if let Some(coding) = coding {
            let is_depth = self.shape[2] == 1;
            info["info"] = json!({
                "video.height": self.shape[0],
                "video.width": self.shape[1],
                "video.codec": coding.name(),
                "video.pix_fmt": if is_depth { "gray12le" } else { "yuv420p" },
                "video.is_depth_map": is_depth,
                "video.fps": rate_hz,
                "video.channels": self.shape[2],
                "has_audio": false,
            });
        }
        info
    }

    fn to_footer(&self) -> Value {
        let value = json!({"dtype": self.dtype, "_type": "Value"});
        match (self.form, self.lists.as_slice()) {
            (Form::Image, _) => json!({"_type": "Image"}),
            (_, []) => value,
            (_, [len]) => json!({"feature": value, "length": len, "_type": "Sequence"}),
            (_, lists) => json!({
                "shape": lists,
                "dtype": self.dtype,
                "_type": format!("Array{}D", lists.len()),
            }),
        }
    }
}

/// The columns that are in the data files.
pub(super) fn in_table(columns: &[Column]) -> impl Iterator<Item = &Column> {
    let is_in = |column: &&Column| !column.is_video();
    columns.iter().filter(is_in)
}

/// The columns that are in video files.
pub(super) fn in_videos(columns: &[Column]) -> impl Iterator<Item = &Column> {
    let is_in = |column: &&Column| column.is_video();
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
