//! What an export keeps beside the frames: everything about an episode that the target format cannot hold. An import
//! restores it.
//!
//! ```text
//! {"kinograph": 1, "id": "demo_0", "splits": ["train"], "task": …, "success": …, "licence": …, "attributes": {…},
//!  "clocks": [{"rate_hz": 20.0}, {"times_ns": [0, 33, …]}],
//!  "streams": {"obs.front": {"name": "obs/front", "kind": "image", "dtype": "uint8", "shape": [84, 84, 3],
//!                            "frames": 59, "clock": 0, "attributes": {"unit": …}}}}
//! ```
//!
//! Beside the files of an export, `kinograph.json` holds the attributes of the dataset:
//! `{"kinograph": 1, "attributes": {…}}`.
//!
//! Streams are listed by their name in the target format. With this file, an import restores what was exported: ids,
//! names, kinds, shapes and clocks. Other libraries that read the format can ignore it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{Clock, Episode, Kind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::defect::Defect;
use crate::error::Result;
use crate::export::{EpisodeOutline, put_json};
use crate::files;
use crate::open::ImportOptions;
use crate::shift::find_shifts;
use crate::source::{ClockSpec, EpisodeSpec, StreamSpec};
use crate::specs;

/// The layout above.
const LAYOUT: u32 = 1;

/// The file beside those of an export.
const DATASET: &str = "kinograph.json";

/// Longer files are not ours.
const MAX_DATASET_BYTES: u64 = 64 << 20;

/// Writes the dataset's attributes into the folder of an export.
pub(crate) fn write_dataset(folder: &Path, attributes: &Map<String, Value>) -> Result<()> {
    let said = json!({"kinograph": LAYOUT, "attributes": attributes});
    put_json(&folder.join(DATASET), &said)
}

/// The attributes of the dataset that was exported to this folder. A file that does not hold them is a defect.
pub(crate) fn read_dataset(
    folder: &Path,
    options: &ImportOptions,
    defects: &mut Vec<Defect>,
) -> Result<Option<Map<String, Value>>> {
    files::check_file(folder, DATASET, options)?;
    let path = folder.join(DATASET);
    let Some(text) = files::read_limited_if_there(&path, MAX_DATASET_BYTES)? else {
        return Ok(None);
    };
    let mut found: Value = serde_json::from_slice(&text).unwrap_or_default();
    let is_ours = found
        .get("kinograph")
        .is_some_and(|layout| *layout == LAYOUT);
    match found.get_mut("attributes").map(Value::take) {
        Some(Value::Object(attributes)) if is_ours => Ok(Some(attributes)),
        _ => {
            let what = "was not written by an export of this version; it is not imported";
            defects.push(Defect::lost(DATASET, what));
            Ok(None)
        }
    }
}

/// An episode, as serialized.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct About {
    kinograph: u32,
    id: String,
    #[serde(default)]
    splits: Vec<String>,
    task: Option<String>,
    success: Option<bool>,
    licence: Option<String>,
    #[serde(default)]
    attributes: Map<String, Value>,
    #[serde(default)]
    clocks: Vec<AboutClock>,
    #[serde(default)]
    streams: BTreeMap<String, AboutStream>,
    /// Whether the format has no bool; the importer checks that such bytes are 0 or 1.
    #[serde(skip)]
    bytes_may_be_bools: bool,
}

/// A stream, as serialized.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AboutStream {
    name: String,
    kind: Kind,
    dtype: String,
    #[serde(default)]
    shape: Vec<usize>,
    frames: u64,
    /// Index into the clocks; `None` if the format stores timestamps.
    clock: Option<usize>,
    #[serde(default)]
    attributes: Map<String, Value>,
}

/// A clock, as serialized.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AboutClock {
    RateHz(f64),
    TimesNs(Vec<i64>),
}

/// Which clocks need to be serialized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// All of them: the format stores no timestamps.
    All,
    /// Rates only: the format stores a timestamp per frame.
    Rates,
}

impl About {
    /// Collects what describes an episode to be exported.
    pub(crate) fn read(
        outline: &EpisodeOutline,
        episode: &Episode,
        clocks: Clocks,
    ) -> Result<Self> {
        let mut attributes = episode.read_attributes()?;
        let mut of_streams = match attributes.remove("stream_attributes") {
            Some(Value::Object(of_streams)) => of_streams,
            _ => Map::new(),
        };
        let mut about = Self {
            kinograph: LAYOUT,
            id: outline.id.clone(),
            splits: outline.splits.clone(),
            task: outline.task.clone(),
            success: outline.success,
            licence: outline.licence.clone(),
            attributes,
            clocks: Vec::new(),
            streams: BTreeMap::new(),
            bytes_may_be_bools: false,
        };
        for stream in &outline.streams {
            let source = episode.stream(&stream.source)?;
            let schema = source.schema();
            let found = AboutStream {
                name: stream.source.clone(),
                kind: stream.kind,
                dtype: schema.dtype.clone(),
                shape: schema.shape.clone(),
                frames: stream.frames as u64,
                clock: about.clock(source.clock()?, clocks),
                attributes: match of_streams.remove(&stream.source) {
                    Some(Value::Object(attributes)) => attributes,
                    _ => Map::new(),
                },
            };
            about.streams.insert(stream.name.clone(), found);
        }
        Ok(about)
    }

    /// The index of a clock; equal clocks are listed once.
    fn clock(&mut self, clock: &Clock, clocks: Clocks) -> Option<usize> {
        let found = match clock {
            Clock::Explicit(_) if clocks == Clocks::Rates => return None,
            Clock::Regular(regular) if regular.start_ns != 0 && clocks == Clocks::Rates => {
                return None;
            }
            Clock::Regular(regular) if regular.start_ns == 0 => {
                AboutClock::RateHz(regular.rate_hz())
            }
            // In an import, a fixed-rate clock starts at zero.
            clock => {
                let times = (0..clock.len()).filter_map(|frame| clock.time_ns(frame));
                AboutClock::TimesNs(times.collect())
            }
        };
        let known = self.clocks.iter().position(|known| *known == found);
        Some(known.unwrap_or_else(|| {
            self.clocks.push(found);
            self.clocks.len() - 1
        }))
    }

    pub(crate) fn to_json(&self) -> String {
        // Keys are strings and no value is NaN: rates are finite.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses JSON, or says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let about: Self = serde_json::from_str(text)
            .map_err(|error| format!("was not written by a kinograph export: {error}"))?;
        match about.kinograph {
            LAYOUT => Ok(about),
            newer => Err(format!(
                "has layout {newer}, this version reads {LAYOUT}; upgrade `kinograph` to read it"
            )),
        }
    }

    /// Bytes become bools again.
    pub(crate) fn with_bytes_as_bools(mut self) -> Self {
        self.bytes_may_be_bools = true;
        self
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The number of frames of the stream with this name in the format; `None` if it is not listed.
    pub(crate) fn frames(&self, there: &str) -> Option<usize> {
        let stream = self.streams.get(there)?;
        usize::try_from(stream.frames).ok()
    }

    /// Whether the stream with this name in the format is text.
    pub(crate) fn is_text(&self, there: &str) -> bool {
        let stream = self.streams.get(there);
        stream.is_some_and(|stream| stream.kind == Kind::Text)
    }

    /// Restores an episode; what does not match becomes a defect at `place`.
    pub(crate) fn restore(self, episode: &mut EpisodeSpec, place: &str, defects: &mut Vec<Defect>) {
        let faults = self.apply(episode).into_iter();
        let fault = |what| Defect::lost(place, what).of(&episode.id);
        defects.extend(faults.map(fault));
    }

    /// Restores an episode, and returns what does not match.
    fn apply(self, episode: &mut EpisodeSpec) -> Vec<String> {
        let mut faults = Vec::new();
        let (mut missing, mut taken) = (self.streams.clone(), BTreeSet::new());
        episode.streams.retain_mut(|spec| {
            // What an export adds for other readers of the format, such as `is_first`, is not listed.
            let Some(said) = missing.remove(&spec.name) else {
                return false;
            };
            let place = format!("stream `{}`", said.name);
            if !taken.insert(said.name.clone()) {
                faults.push(format!("{place} is listed twice; the first one is used"));
                return false;
            }
            let what = said.apply(spec, &self.clocks, self.bytes_may_be_bools);
            faults.extend(what.map(|what| format!("{place} {what}")));
            true
        });
        let missing = missing.into_values();
        faults.extend(missing.map(|said| format!("stream `{}` is listed but missing", said.name)));
        episode.sort_streams();
        find_shifts(&mut episode.streams);
        episode.id = self.id;
        episode.splits = self.splits;
        episode.task = self.task;
        episode.success = self.success;
        episode.licence = self.licence;
        episode.attributes = self.attributes;
        faults
    }
}

impl AboutStream {
    /// Restores a stream, and returns what does not match.
    fn apply(
        self,
        spec: &mut StreamSpec,
        clocks: &[AboutClock],
        bytes_may_be_bools: bool,
    ) -> Option<String> {
        spec.name = self.name;
        spec.attributes = self.attributes;
        if let Some(Value::String(unit)) = spec.attributes.get("unit").cloned() {
            spec.attributes.remove("unit");
            spec.unit = Some(unit);
        }
        match clocks.get(self.clock.unwrap_or(usize::MAX)) {
            Some(AboutClock::RateHz(rate_hz)) if specs::is_rate(rate_hz) => {
                spec.clock = ClockSpec::Regular { rate_hz: *rate_hz };
            }
            Some(AboutClock::TimesNs(times))
                if times.len() as u64 == spec.frames && times.is_sorted() =>
            {
                spec.clock = ClockSpec::Explicit(Arc::from(times.as_slice()));
            }
            None if self.clock.is_none() => {}
            _ => return Some("has a clock that does not match its frames".to_owned()),
        }
        let is_text = self.kind == Kind::Text;
        if is_text != (spec.frame == FrameType::Text) || self.frames != spec.frames {
            let (frames, frame) = (spec.frames, &spec.frame);
            return Some(format!(
                "is listed with {} frames of {}, but has {frames} of {frame}",
                self.frames, self.dtype
            ));
        }
        let may_be_bools = bytes_may_be_bools && spec.kind == Kind::Vector;
        spec.kind = self.kind;
        if let FrameType::Values(there) = &spec.frame {
            let dtype: Option<Dtype> = self.dtype.parse().ok();
            let frame = dtype.and_then(|dtype| FrameType::values(dtype, &self.shape).ok());
            let fits = frame
                .as_ref()
                .and_then(FrameType::as_values)
                .is_some_and(|said| {
                    let is_bool = (said.dtype(), there.dtype()) == (Dtype::Bool, Dtype::U8);
                    said.elements() == there.elements()
                        && (is_bool && may_be_bools || said.dtype() == there.dtype())
                });
            match frame.filter(|_| fits) {
                Some(frame) => spec.frame = frame,
                None => {
                    let (dtype, shape) = (self.dtype, self.shape);
                    return Some(format!("is listed as {dtype}{shape:?}, but is {there}"));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{FrameBuf, ReadFrames, Wanted};

    struct Nothing;

    impl ReadFrames for Nothing {
        fn read(&self, _: Wanted<'_>) -> Result<FrameBuf> {
            Ok(FrameBuf::default())
        }
    }

    fn spec(name: &str, frame: FrameType, frames: u64) -> StreamSpec {
        StreamSpec::new(name, Kind::Vector, frame, frames, Arc::new(Nothing))
    }

    fn episode(streams: Vec<StreamSpec>) -> EpisodeSpec {
        EpisodeSpec {
            id: "there".to_owned(),
            streams,
            ..EpisodeSpec::default()
        }
    }

    fn about(streams: Value) -> About {
        let text = json!({"kinograph": 1, "id": "here", "splits": ["train"], "task": "lift",
                          "clocks": [{"rate_hz": 20.0}, {"times_ns": [0, 5]}, {"times_ns": [5, 0]}],
                          "streams": streams});
        About::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn an_episode_is_restored() {
        let about = about(json!({
            "obs.z": {"name": "obs/Z", "kind": "depth", "dtype": "uint16", "shape": [2, 3], "frames": 2, "clock": 1,
                      "attributes": {"unit": "mm", "lens": 1}},
            "done": {"name": "a/done", "kind": "vector", "dtype": "bool", "frames": 2, "clock": 0},
        }));
        assert_eq!(
            (about.frames("done"), about.frames("none")),
            (Some(2), None)
        );
        let mut found = episode(vec![
            spec("done", FrameType::values(Dtype::U8, &[]).unwrap(), 2),
            spec("is_first", FrameType::values(Dtype::Bool, &[]).unwrap(), 2),
            spec(
                "obs.z",
                FrameType::values(Dtype::U16, &[2, 3, 1]).unwrap(),
                2,
            ),
        ]);
        let about = about.with_bytes_as_bools();
        assert_eq!(about.apply(&mut found), [""; 0]);
        assert_eq!(found.streams.len(), 2);
        assert_eq!(
            (found.id.as_str(), found.task.as_deref()),
            ("here", Some("lift"))
        );
        let (done, z) = (&found.streams[0], &found.streams[1]);
        assert_eq!((done.name.as_str(), z.name.as_str()), ("a/done", "obs/Z"));
        assert_eq!(done.frame, FrameType::values(Dtype::Bool, &[]).unwrap());
        assert_eq!(z.frame, FrameType::values(Dtype::U16, &[2, 3]).unwrap());
        assert_eq!((z.kind, z.unit.as_deref()), (Kind::Depth, Some("mm")));
        assert_eq!(z.clock, ClockSpec::Explicit(Arc::from([0, 5])));
    }

    #[test]
    fn mismatches_are_reported_and_nothing_is_trusted() {
        let stream = |name: &str, dtype: &str, frames: u64, clock: usize| json!({"name": name, "kind": "vector", "dtype": dtype, "frames": frames, "clock": clock});
        let about = about(json!({
            "a": stream("a", "float64", 2, 0), "b": stream("b", "float32", 3, 0), "c": stream("c", "float32", 2, 2),
            "d": stream("d", "float32", 2, 9), "e": stream("a", "float32", 2, 0), "f": stream("f", "float32", 2, 0),
        }));
        let number = || FrameType::values(Dtype::F32, &[]).unwrap();
        let mut found = episode(
            ["a", "b", "c", "d", "e"]
                .map(|name| spec(name, number(), 2))
                .into(),
        );
        let faults = about.apply(&mut found);
        assert_eq!(faults.len(), 6, "{faults:?}");
        assert!(found.streams.iter().all(|stream| stream.frame == number()));
        for text in ["", "{}", "[1]", r#"{"kinograph": 2, "id": "x"}"#] {
            assert!(About::parse(text).is_err(), "{text}");
        }
    }
}
