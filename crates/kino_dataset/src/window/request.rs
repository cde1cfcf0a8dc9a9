//! What one training sample is: an anchor, and a window per key.
//!
//! ```text
//! {"anchor": {"stream": "actions"},                          every action is the middle of a sample
//!  "windows": [{"stream": "cam", "at": {"times_ns": [-100000000, 0]},
//!               "resolve": {"nearest": {"max_staleness_ns": 50000000}}, "after": "drop"},
//!              {"stream": "actions", "at": {"steps": [0, 1, 2, 3]}}],
//!  "masks": "is_pad", "skip_first": 0, "skip_last": 0, "include": ["task"]}
//! ```
//!
//! A request is plain data: it says nothing about a dataset, goes into a loader's state as JSON and comes
//! from Python the same way. `bound.rs` checks it against a dataset. All times are whole nanoseconds.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::include::{self, Include};
use super::json;
use super::mask::MaskDialect;
use crate::error::{Result, invalid};

/// No request has more windows than this.
const MAX_WINDOWS: usize = 1024;

/// No window has more offsets than this.
const MAX_OFFSETS: usize = 1 << 16;

/// No key is longer than this.
const MAX_KEY_BYTES: usize = 255;

/// What one sample is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What every sample is built around.
    pub anchor: Anchor,
    /// The windows of a sample, in the order of its fields.
    pub windows: Vec<Window>,
    /// How padding is told.
    #[serde(default)]
    pub masks: MaskDialect,
    /// Anchors skipped at the start of every episode.
    #[serde(default)]
    pub skip_first: u32,
    /// Anchors skipped at the end of every episode.
    #[serde(default)]
    pub skip_last: u32,
    /// What else a sample holds: where it comes from.
    #[serde(default)]
    pub include: Vec<Include>,
    /// Patterns of streams and the variants to read instead, `None` for the stream itself; the first match applies.
    /// Binding puts them into the windows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<(String, Option<String>)>,
}

/// What every sample is built around.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Anchor {
    /// Every frame of this stream.
    Stream(String),
    /// Times at a fixed rate, from the first time of the episode to the last.
    #[serde(rename = "rate_hz")]
    Rate(Rate),
    /// One sample per episode; its time is the start of the episode.
    Episode,
    /// The frames of the clock that the requested streams share: the default. Binding replaces it by one of the
    /// streams, or refuses streams with different clocks (`shared.rs`).
    Shared,
}

/// A rate in Hz, as a fraction; in JSON a number or `[num, den]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Times per `den` seconds, at least 1.
    pub num: u32,
    /// At least 1.
    pub den: u32,
}

/// The frames of one stream around an anchor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "json::WindowJson")]
pub struct Window {
    /// Its name in the sample; by default the stream's name.
    pub key: String,
    /// The stream.
    pub stream: String,
    /// Which moments.
    pub at: At,
    /// How a moment becomes a frame.
    pub resolve: Resolve,
    /// Frames carry stamps that are this late: what happened at t is stamped t + latency.
    pub latency_ns: i64,
    /// What stands for a moment before the first frame.
    pub before: Pad,
    /// What stands for a moment after the last frame.
    pub after: Pad,
    /// Whether the field has a leading axis of time.
    pub stack: Stack,
}

/// Which moments a window is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// Frames of this stream, counted from its frame at the anchor's time.
    Steps(Vec<i32>),
    /// Nanoseconds from the anchor's time.
    #[serde(rename = "times_ns")]
    Times(Vec<i64>),
    /// Every frame of the stream.
    All,
    /// The last frame of the stream: the goal at the episode's end.
    Last,
    /// So many frames before the last; the first frame where there are not so many.
    FromEnd(u32),
}

/// How a moment becomes a frame; in JSON a name, or `{name: {"max_staleness_ns": …}}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// `Hold` for text, which must not come from the future, and `Nearest` for everything else; binding replaces it.
    Auto {
        /// A frame farther away than this counts as missing.
        max_staleness_ns: Option<u64>,
    },
    /// The frame nearest in time; of two equally near the earlier.
    Nearest {
        /// A frame farther away than this counts as missing.
        max_staleness_ns: Option<u64>,
    },
    /// The last frame at or before the moment.
    Hold {
        /// A frame older than this counts as missing.
        max_staleness_ns: Option<u64>,
    },
    /// Between the two neighbours, in proportion.
    Linear {
        /// A moment farther than this from both neighbours counts as missing.
        max_staleness_ns: Option<u64>,
    },
    /// Between two quaternions, along the shorter arc.
    Slerp {
        /// A moment farther than this from both neighbours counts as missing.
        max_staleness_ns: Option<u64>,
    },
}

/// What stands for a missing frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pad {
    /// The frame at the edge, again.
    #[default]
    Edge,
    /// Zeros, or empty text.
    Zero,
    /// Nothing: the anchor is not a sample.
    Drop,
}

/// Whether a field has a leading axis of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stack {
    /// It has one, also for a single moment.
    #[default]
    Stacked,
    /// It has none; for exactly one moment.
    Single,
}

impl Request {
    /// These windows around this anchor, with every other option at its default.
    pub fn new(anchor: Anchor, windows: Vec<Window>) -> Self {
        Self {
            anchor,
            windows,
            masks: MaskDialect::default(),
            skip_first: 0,
            skip_last: 0,
            include: Vec::new(),
            variants: Vec::new(),
        }
    }

    /// Parses a request from JSON; unknown options are refused.
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| invalid(format!("request: {error}")))
    }

    /// The request as one line of JSON, the same for equal requests; with the dataset's id it says which windows there are.
    pub fn canonical(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| invalid(format!("the request has no JSON form: {error}")))
    }

    /// Refuses what no dataset could serve.
    pub fn check(&self) -> Result<()> {
        if self.windows.is_empty() || self.windows.len() > MAX_WINDOWS {
            let len = self.windows.len();
            return Err(invalid(format!(
                "the request has {len} windows; give 1 to {MAX_WINDOWS}"
            )));
        }
        if let Anchor::Rate(rate) = self.anchor {
            rate.check()?;
        }
        let mut keys = HashSet::new();
        for window in &self.windows {
            window.check(&self.anchor)?;
            if !keys.insert(window.key.as_str()) {
                return Err(invalid(format!(
                    "two windows have the key `{}`; give one of them another `key`",
                    window.key
                )));
            }
        }
        let masks = super::mask::masks(self)?;
        for mask in &masks {
            if !keys.insert(mask.name.as_str()) {
                return Err(invalid(format!(
                    "key `{}` is also the name of a mask; choose another key or other masks",
                    mask.name
                )));
            }
        }
        include::check(&self.include, &keys)
    }
}

impl Window {
    /// A window of `stream` at `at`, under the stream's name, with every other setting at its default.
    pub fn new(stream: &str, at: At) -> Self {
        Self {
            key: stream.to_owned(),
            stream: stream.to_owned(),
            at,
            resolve: Resolve::default(),
            latency_ns: 0,
            before: Pad::Edge,
            after: Pad::Edge,
            stack: Stack::Stacked,
        }
    }

    /// How many moments it has, where the request alone says so.
    pub fn len(&self) -> Option<usize> {
        match &self.at {
            At::Steps(steps) => Some(steps.len()),
            At::Times(times) => Some(times.len()),
            At::Last | At::FromEnd(_) => Some(1),
            At::All => None,
        }
    }

    /// Whether it certainly has no moment; such a window is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether any of its moments lies after the anchor.
    pub(crate) fn reaches_ahead(&self) -> bool {
        match &self.at {
            At::Steps(steps) => steps.iter().any(|&step| step > 0),
            At::Times(times) => times.iter().any(|&time| time > 0),
            At::All => true,
            At::Last | At::FromEnd(_) => false,
        }
    }

    pub(crate) fn drops(&self) -> bool {
        let moves = matches!(self.at, At::Steps(_) | At::Times(_));
        moves && (self.before == Pad::Drop || self.after == Pad::Drop)
    }

    fn check(&self, anchor: &Anchor) -> Result<()> {
        let key = &self.key;
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(invalid(format!(
                "window of stream `{}`: the key has {} bytes; use 1 to {MAX_KEY_BYTES}",
                self.stream,
                key.len()
            )));
        }
        let place = self.place();
        match (&self.at, self.len(), self.stack) {
            (_, Some(0), _) => Err(invalid(format!(
                "{place} has no offsets; the frame at the anchor is step 0"
            ))),
            (_, Some(len), _) if len > MAX_OFFSETS => Err(invalid(format!(
                "{place} has {len} offsets; at most {MAX_OFFSETS} are allowed, or `all`"
            ))),
            (At::All, _, Stack::Single) => Err(invalid(format!(
                "{place} is `single` but has all frames; make it `stacked`"
            ))),
            (_, Some(len), Stack::Single) if len > 1 => Err(invalid(format!(
                "{place} is `single` but has {len} offsets; give 1, or make it `stacked`"
            ))),
            (At::Steps(steps), ..) if *anchor == Anchor::Episode => Err(invalid(format!(
                "{place} has steps such as {}, but the anchor is the episode; use `times_ns`, `all` or `last`",
                steps.first().unwrap_or(&0)
            ))),
            (At::Steps(_), ..) if self.resolve.blends() => Err(invalid(format!(
                "{place}: `{}` interpolates between frames, but steps count frames; give times in seconds (`times_ns` in JSON), or use `nearest` or `hold`",
                self.resolve.name()
            ))),
            (At::All | At::Last | At::FromEnd(_), ..) if self.latency_ns != 0 => {
                Err(invalid(format!(
                    "{place} has a latency of {} ns, but takes frames by number; set the latency to 0",
                    self.latency_ns
                )))
            }
            _ => Ok(()),
        }
    }

    /// How errors name it.
    pub(crate) fn place(&self) -> String {
        if self.key == self.stream {
            format!("window `{}`", self.key)
        } else {
            format!("window `{}` of stream `{}`", self.key, self.stream)
        }
    }
}

impl Resolve {
    /// A frame farther away than this counts as missing.
    pub fn max_staleness_ns(&self) -> Option<u64> {
        match *self {
            Self::Auto { max_staleness_ns }
            | Self::Nearest { max_staleness_ns }
            | Self::Hold { max_staleness_ns }
            | Self::Linear { max_staleness_ns }
            | Self::Slerp { max_staleness_ns } => max_staleness_ns,
        }
    }

    /// Whether frames are blended.
    pub fn blends(&self) -> bool {
        matches!(self, Self::Linear { .. } | Self::Slerp { .. })
    }
}

impl Default for Resolve {
    fn default() -> Self {
        Self::Auto {
            max_staleness_ns: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Request> {
        Request::from_json(json)
    }

    #[test]
    fn a_short_request_gets_the_defaults_and_a_full_one_comes_back() {
        let short = parse(
            r#"{"anchor": {"stream": "actions"}, "windows": [{"stream": "cam", "at": {"steps": [0]}}]}"#,
        );
        let expected = Request::new(
            Anchor::Stream("actions".to_owned()),
            vec![Window::new("cam", At::Steps(vec![0]))],
        );
        assert_eq!(short.unwrap(), expected);
        let full = r#"{"anchor":{"stream":"actions"},"windows":[{"key":"c","stream":"cam","at":{"times_ns":[-100000000,0]},"resolve":{"nearest":{"max_staleness_ns":50000000}},"latency_ns":7,"before":"edge","after":"drop","stack":"stacked"},{"key":"all","stream":"cam","at":"all","resolve":"hold","latency_ns":0,"before":"zero","after":"edge","stack":"stacked"}],"masks":"pad_mask","skip_first":1,"skip_last":2,"include":["task","sample"]}"#;
        assert_eq!(parse(full).unwrap().canonical().unwrap(), full);
        for (anchor, rate) in [
            ("30", (30, 1)),
            ("[30000, 1001]", (30_000, 1001)),
            ("29.97", (2997, 100)),
        ] {
            let json = format!(
                r#"{{"anchor": {{"rate_hz": {anchor}}}, "windows": [{{"stream": "c", "at": "last"}}]}}"#
            );
            let (num, den) = rate;
            assert_eq!(
                parse(&json).unwrap().anchor,
                Anchor::Rate(Rate { num, den })
            );
        }
    }

    #[test]
    fn unknown_options_are_refused_and_the_known_ones_named() {
        for (json, says) in [
            (
                r#"{"anchor": "episode", "windows": [], "maks": "off"}"#,
                "maks",
            ),
            (
                r#"{"anchor": "episode", "windows": [{"stream": "a", "at": "all", "pad": 1}]}"#,
                "pad",
            ),
            (
                r#"{"anchor": "episode", "windows": [{"stream": "a", "at": "all", "resolve": "cubic"}]}"#,
                "auto, nearest, hold, linear, slerp",
            ),
            (
                r#"{"anchor": "episode", "windows": [{"stream": "a", "at": "all", "resolve": {"hold": {"max": 1}}}]}"#,
                "max_staleness_ns",
            ),
            (
                r#"{"anchor": "episode", "windows": [{"stream": "a", "at": "all", "before": "wrap"}]}"#,
                "wrap",
            ),
            (
                r#"{"anchor": {"rate_hz": 0}, "windows": []}"#,
                "1e-6 to 1e9",
            ),
            (
                r#"{"anchor": {"rate_hz": [1, 0]}, "windows": []}"#,
                "1e-6 to 1e9",
            ),
        ] {
            let error = parse(json).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_no_dataset_could_serve_is_refused_with_what_would_be_right() {
        let window = |at| Window::new("cam", at);
        let single = |at| Window {
            stack: Stack::Single,
            ..window(at)
        };
        let late = Window {
            latency_ns: 5,
            ..window(At::Last)
        };
        let nameless = Window {
            key: String::new(),
            ..window(At::Last)
        };
        let stream = || Anchor::Stream("actions".to_owned());
        let taken = Window {
            key: "cam_is_pad".to_owned(),
            ..window(At::Last)
        };
        for (anchor, windows, says) in [
            (stream(), vec![], "give 1 to 1024"),
            (stream(), vec![window(At::Steps(vec![]))], "step 0"),
            (
                stream(),
                vec![window(At::Times(vec![0; 70_000]))],
                "70000 offsets; at most 65536",
            ),
            (stream(), vec![single(At::All)], "make it `stacked`"),
            (
                stream(),
                vec![single(At::Steps(vec![0, 1]))],
                "has 2 offsets; give 1",
            ),
            (
                Anchor::Episode,
                vec![window(At::Steps(vec![3]))],
                "such as 3",
            ),
            (
                stream(),
                vec![late],
                "latency of 5 ns, but takes frames by number; set the latency to 0",
            ),
            (stream(), vec![nameless], "the key has 0 bytes"),
            (
                stream(),
                vec![window(At::Last), window(At::All)],
                "two windows have the key `cam`",
            ),
            (
                stream(),
                vec![window(At::Last), taken],
                "also the name of a mask",
            ),
            (
                Anchor::Rate(Rate { num: 1, den: 0 }),
                vec![window(At::Last)],
                "1e-6 to 1e9",
            ),
        ] {
            let error = Request::new(anchor, windows)
                .check()
                .unwrap_err()
                .to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
