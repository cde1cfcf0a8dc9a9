//! Maps arrays to streams, splits them at `meta/episode_ends`, and finds what is missing.
//!
//! ```text
//! data/img     0 ───────────── 11 ──── 16 ──────────────── 30       one stream of three episodes
//! meta/episode_ends            11      16                  30
//! ```
//!
//! | in the store | becomes |
//! |---|---|
//! | `data/<key>` of as many rows as the others | stream `<key>` |
//! | small arrays of `meta` | attributes of the source |
//! | attributes of an array | attributes of its stream |
//! | an end that decreases, or exceeds the last row | defect, that episode is skipped |
//! | a missing chunk | defect; its frames read as the fill value |

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result, invalid};
use crate::jpeg;
use crate::npy::Element;
use crate::open::ImportOptions;
use crate::source::StreamSpec;
use crate::specs;
use crate::values::{self, kind_of, number};
use crate::zarr::array::{Array, Values, advance};
use crate::zarr::compressor::Compressor;
use crate::zarr::frames::{Data, ZarrStream};
use crate::zarr::store::Store;

/// `.zarray`, `.zattrs` and `.zgroup` longer than this are refused.
const MAX_JSON_BYTES: u64 = 4 << 20;

/// An array of at most this many elements can become an attribute.
const SMALL_ELEMENTS: u64 = 4096;

/// UMI's cameras record 59.94 frames per second, and its code assumes 60.
const UMI_RATE_HZ: f64 = 60.0;

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) arrays: BTreeMap<String, Array>,
    pub(crate) attributes: Map<String, Value>,
    pub(crate) defects: Vec<Defect>,
    /// Every key of the store.
    pub(crate) keys: Vec<String>,
}

/// Reads the metadata of every group and array.
pub(crate) fn walk(store: &Store) -> Result<Walked> {
    let (keys, outside) = store.keys()?;
    let mut walked = Walked::default();
    for key in outside {
        let what = "has a name that leads out of the store";
        walked.skip(store, &key, what);
    }
    for key in &keys {
        let (path, file) = key.rsplit_once('/').unwrap_or(("", key));
        match file {
            ".zarray" => match read_json(store, key)? {
                None => walked.skip(store, path, "has a `.zarray` that is not JSON"),
                Some(json) => match Array::parse(path, &json) {
                    Ok(array) => drop(walked.arrays.insert(path.to_owned(), array)),
                    Err(what) => walked.skip(store, path, &what),
                },
            },
            "zarr.json" if path.is_empty() => {
                return Err(ImportError::unsupported(
                    store.path(),
                    key,
                    "is zarr v3",
                    "write it as v2 with zarr-python: `zarr.open_group(path, zarr_format=2)`",
                ));
            }
            _ => {}
        }
    }
    for key in keys.iter().filter(|key| key.ends_with(".zattrs")) {
        let path = key.rsplit_once('/').map_or("", |(path, _)| path);
        let Some(Value::Object(attributes)) = read_json(store, key)? else {
            walked.skip(store, key, "is not a JSON object");
            continue;
        };
        match walked.arrays.get_mut(path) {
            Some(array) => array.attributes = attributes,
            None => {
                for (name, value) in attributes {
                    let name = match path {
                        "" => name,
                        path => format!("{path}@{name}"),
                    };
                    walked.attributes.insert(name, value);
                }
            }
        }
    }
    walked.keys = keys;
    Ok(walked)
}

fn read_json(store: &Store, key: &str) -> Result<Option<Value>> {
    let text = store.read(key, MAX_JSON_BYTES)?.unwrap_or_default();
    Ok(serde_json::from_slice(&text).ok())
}

impl Walked {
    fn skip(&mut self, store: &Store, object: &str, what: &str) {
        let defect = Defect::new(store.place(object), what, Action::Skipped);
        self.defects.push(defect);
    }

    /// Removes the arrays of `data`, sorted by name.
    pub(crate) fn take_data(&mut self) -> Vec<Array> {
        let arrays = std::mem::take(&mut self.arrays).into_iter();
        let (data, others): (BTreeMap<_, _>, _) =
            arrays.partition(|(name, _)| name.starts_with("data/"));
        self.arrays = others;
        data.into_values().collect()
    }

    /// Small arrays of `meta` become attributes; the others outside `data` become defects.
    pub(crate) fn take_asides(&mut self, store: &Store) -> Result<()> {
        let names: Vec<_> = self.arrays.keys().cloned().collect();
        for name in names.iter().filter(|name| !name.starts_with("data/")) {
            let Some(array) = self.arrays.remove(name) else {
                continue;
            };
            if name == "meta/episode_ends" {
                continue;
            }
            if array.elements() > SMALL_ELEMENTS {
                let what = format!(
                    "is not under `data` and too large for an attribute: its shape is {:?}",
                    array.shape
                );
                self.skip(store, name, &what);
                continue;
            }
            match json_of(store, &array) {
                Ok(value) => {
                    let key = name.strip_prefix("meta/").unwrap_or(name);
                    self.attributes.insert(key.to_owned(), value);
                    for (attribute, value) in array.attributes {
                        self.attributes.insert(format!("{key}@{attribute}"), value);
                    }
                }
                Err(ImportError::Corrupt { what, .. }) => self.skip(store, name, &what),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A small array as JSON: a value, or lists of lists of its shape.
fn json_of(store: &Store, array: &Array) -> Result<Value> {
    let wrong = |what| ImportError::corrupt(store.path(), &array.path, what);
    let Values::Fixed(element) = array.values else {
        let what = "contains variable-length strings, which are only supported under `data`";
        return Err(wrong(what.to_owned()));
    };
    let mut bytes = read_all(store, array)?;
    if let Element::Number { dtype, .. } = element {
        element.to_little(&mut bytes).map_err(wrong)?;
        return Ok(values::numbers(dtype, &bytes, &array.shape));
    }
    let texts = element.texts(&bytes).map_err(wrong)?;
    let texts = texts.into_iter().map(Value::from).collect();
    Ok(values::nest(texts, &array.shape))
}

/// Every element of a small array; the caller knows that it is one.
fn read_all(store: &Store, array: &Array) -> Result<Vec<u8>> {
    if array.shape.is_empty() {
        let value = array.read_chunk(store, &[])?;
        return Ok(value.unwrap_or_else(|| array.fill().to_vec()));
    }
    array.read_rows(0..array.rows(), &|index| {
        Ok(array.read_chunk(store, index)?.map(Arc::new))
    })
}

/// Where the episodes are: their ranges of rows, by number.
pub(crate) fn episodes(
    store: &Store,
    walked: &mut Walked,
    rows: u64,
) -> Result<Vec<(usize, Range<u64>)>> {
    const PATH: &str = "meta/episode_ends";
    let Some(array) = walked.arrays.get(PATH) else {
        return Err(ImportError::unsupported(
            store.path(),
            PATH,
            "does not exist, so the ends of episodes are unknown",
            "pass a replay buffer of diffusion_policy or UMI, which has `data/<key>` and `meta/episode_ends`",
        ));
    };
    let wrong = |what: &str| ImportError::corrupt(store.path(), PATH, what);
    let (Values::Fixed(element), [count]) = (array.values, array.shape.as_slice()) else {
        return Err(wrong("is not a one-dimensional numeric array"));
    };
    // An episode has at least one row, so no valid list is longer.
    if *count > rows {
        return Err(wrong(&format!(
            "has {count} ends, but the arrays of `data` have {rows} rows"
        )));
    }
    let mut bytes = read_all(store, array)?;
    element.to_little(&mut bytes).map_err(|what| wrong(&what))?;
    let dtype = array.dtype().filter(|dtype| !dtype.is_float());
    let dtype = dtype.ok_or_else(|| wrong("does not contain integers"))?;
    let (mut start, mut episodes) = (0, Vec::new());
    for (idx, end) in bytes.chunks_exact(dtype.size()).enumerate() {
        let value = number(dtype, end);
        let end = value.as_u64().unwrap_or(0);
        let before = start;
        let what = match end {
            end if end > rows => format!("is {end}, but the arrays of `data` have {rows} rows"),
            end if value.as_u64().is_none() || end < before => {
                format!("is {value}, which is less than {before} before it")
            }
            end if end == before => {
                format!("is {value}, like the one before it: the episode has no frames")
            }
            end => {
                episodes.push((idx, before..end));
                start = end;
                continue;
            }
        };
        let place = format!("{}[{idx}]", store.place(PATH));
        let defect = Defect::new(place, what, Action::Dropped);
        walked.defects.push(defect.of(&format!("episode_{idx}")));
    }
    if start < rows {
        let what = format!("ends at {start}: rows {start}..{rows} do not belong to an episode");
        walked.skip(store, PATH, &what);
    }
    Ok(episodes)
}

/// The rate, which only exported replay buffers store.
pub(crate) fn rate_hz(
    store: &Store,
    walked: &mut Walked,
    arrays: &[Array],
    options: &ImportOptions,
) -> Result<f64> {
    if let Some(rate_hz) = options.rate_hz {
        return Ok(rate_hz);
    }
    let said = walked.attributes.get("rate_hz").and_then(Value::as_f64);
    if let Some(rate_hz) = said.filter(specs::is_rate) {
        return Ok(rate_hz);
    }
    let is_umi = |array: &Array| {
        let name = array.path.strip_prefix("data/robot").unwrap_or_default();
        name.trim_start_matches(|digit: char| digit.is_ascii_digit()) == "_eef_rot_axis_angle"
    };
    if arrays.iter().any(is_umi) {
        let what = "does not specify a rate; using UMI's 60 Hz (override with --rate HZ, in Python rate_hz=)";
        let defect = Defect::new(store.place("data"), what, Action::Noted);
        walked.defects.push(defect);
        return Ok(UMI_RATE_HZ);
    }
    Err(invalid(format!(
        "{}: the replay buffer does not specify a rate; pass --rate HZ (in Python rate_hz=), e.g. 10 for PushT",
        store.path().display()
    )))
}

/// The spec of a stream without its episode, or why it cannot be one.
pub(crate) fn stream(data: &Arc<Data>) -> Result<Result<StreamSpec, String>> {
    let array = &data.array;
    let frame = match values::frame_type(array.dtype(), &array.shape) {
        Ok(frame) => frame,
        Err(what) => return Ok(Err(what)),
    };
    let carried = array.compressor == Compressor::Jpeg;
    if carried {
        let is_frame = array.chunk.first() == Some(&1) && array.chunk[1..] == array.shape[1..];
        let first = array.read_stored(&data.store, &vec![0; array.shape.len()])?;
        let header = first.as_deref().and_then(jpeg::header);
        let size = header.map(|header| [header.height, header.width, header.components]);
        if !is_frame
            || size.as_ref().map(<[_; 3]>::as_slice) != frame.as_values().map(|ty| ty.shape())
        {
            return Ok(Err(
                "is JPEG files, but not one image of its shape per frame".to_owned(),
            ));
        }
    }
    let name = array.stream_name();
    let kind = kind_of(name, &frame);
    let mut stream = StreamSpec::new(name, kind, frame, 0, ZarrStream::new(data, 0));
    stream.carried = carried;
    stream.set_attributes(array.attributes.clone());
    Ok(Ok(stream))
}

/// Which rows have a missing chunk; an error if far too few chunks exist.
pub(crate) fn absent_rows(array: &Array, keys: &HashSet<&str>) -> Result<Vec<Range<u64>>, String> {
    let grid = array.grid();
    let total = grid
        .iter()
        .try_fold(1u64, |total, &axis| total.checked_mul(axis));
    let prefix = format!("{}/", array.path);
    let most = keys.len() as u64 * 2 + 64;
    let Some(total) = total.filter(|&total| total <= most) else {
        return Err(format!(
            "has a grid of {grid:?} chunks, but the store has far fewer under `{prefix}`"
        ));
    };
    let mut absent: Vec<Range<u64>> = Vec::new();
    let mut index = vec![0; grid.len()];
    let mut found = 0;
    for _ in 0..total {
        if keys.contains(array.key(&index).as_str()) {
            found += 1;
        } else {
            let start = index[0] * array.chunk[0];
            let end = (start + array.chunk[0]).min(array.rows());
            match absent.last_mut() {
                Some(last) if last.end >= start => last.end = end,
                _ => absent.push(start..end),
            }
        }
        advance(&mut index, &grid);
    }
    if found == 0 && total > 0 {
        Err("has none of its chunks".to_owned())
    } else {
        Ok(absent)
    }
}
