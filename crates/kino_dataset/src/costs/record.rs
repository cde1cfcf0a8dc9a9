//! What codecs cost on this machine, kept in a file between runs.
//!
//! ```text
//! ~/.cache/kinograph/costs-9f2c41aa.json      named after the CPU and the library version
//! [{"codec": "predict:level=3", "frame": "uint8[84, 84, 3]", "frame_bytes": 21168, "ratio": 3.2,
//!   "encode_ns": 410000, "decode_ns": 30000, "random_ns": 30100}, …]          all per frame
//! ```
//!
//! For codecs and frames that were never measured, a record answers with the nearest: the same codec before one of
//! the same name, then the nearest frame size, scaled by bytes.

use std::path::{Path, PathBuf};

use kino_codec::{CodecSpec, FrameType};
use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid, io_at};

use super::measure::Measured;

/// What one codec costs for one type of frame, per frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The codec's canonical name.
    pub codec: String,
    /// The type of the frames.
    pub frame: String,
    /// Bytes of a frame before encoding.
    pub frame_bytes: f64,
    /// Bytes before encoding ÷ bytes after.
    pub ratio: f64,
    /// Nanoseconds to encode a frame.
    pub encode_ns: f64,
    /// Nanoseconds to decode a frame in sequence.
    pub decode_ns: f64,
    /// Nanoseconds to decode a frame at a random position.
    pub random_ns: f64,
}

impl Cost {
    /// The same cost for frames of another size.
    fn scaled_to(&self, frame_bytes: f64) -> Self {
        let factor = frame_bytes / self.frame_bytes.max(1.0);
        Self {
            frame_bytes,
            encode_ns: self.encode_ns * factor,
            decode_ns: self.decode_ns * factor,
            random_ns: self.random_ns * factor,
            ..self.clone()
        }
    }
}

/// What codecs cost on this machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CostRecord {
    costs: Vec<Cost>,
}

impl CostRecord {
    /// Everything that was measured.
    pub fn costs(&self) -> &[Cost] {
        &self.costs
    }

    /// Adds a measurement, replacing an earlier one of the same codec and frame type.
    ///
    /// What cannot be stored is not kept: nothing could be packed with it.
    pub fn add(&mut self, measured: &Measured) {
        if !measured.is_stored() {
            return;
        }
        let cost = measured.to_cost();
        let is_same = |known: &Cost| known.codec == cost.codec && known.frame == cost.frame;
        self.costs.retain(|known| !is_same(known));
        self.costs.push(cost);
    }

    /// What `codec` costs for such frames: measured, or scaled from the nearest measurement.
    pub fn cost(&self, codec: &CodecSpec, frame: &FrameType) -> Option<Cost> {
        let (text, frame_text) = (codec.to_string(), frame.to_string());
        let exact = |cost: &&Cost| cost.codec == text && cost.frame == frame_text;
        if let Some(cost) = self.costs.iter().find(exact) {
            return Some(cost.clone());
        }
        let bytes = frame.as_values()?.frame_bytes();
        #[expect(clippy::cast_precision_loss, reason = "a frame is under 2⁵³ bytes")]
        let bytes = bytes as f64;
        // How far off a cost is: another parameter counts more than any size.
        let distance = |cost: &Cost| {
            let size = (cost.frame_bytes.max(1.0) / bytes.max(1.0)).ln().abs();
            size + if cost.codec == text { 0.0 } else { 1e3 }
        };
        let has_name = |cost: &&Cost| {
            let spec: Result<CodecSpec, _> = cost.codec.parse();
            spec.is_ok_and(|spec| spec.name() == codec.name())
        };
        let known = self.costs.iter().filter(has_name);
        let nearest = known.min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        Some(nearest.scaled_to(bytes))
    }

    /// The record of this machine; empty if nothing was measured yet.
    ///
    /// An unreadable record is treated as empty: it can always be measured again.
    pub fn load() -> Self {
        let bytes = file().and_then(|path| std::fs::read(path).ok());
        let record = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        record.unwrap_or_default()
    }

    /// Saves the record for this machine, and returns its path.
    pub fn save(&self) -> Result<PathBuf> {
        let path = file().ok_or_else(|| {
            invalid("there is no folder for the cost record: set XDG_CACHE_HOME or HOME, or use --no-cache")
        })?;
        self.save_to(&path)?;
        Ok(path)
    }

    /// Writes a new file and renames it over the old one, so that a reader sees one or the other.
    fn save_to(&self, path: &Path) -> Result<()> {
        let shown = path.display().to_string();
        let failed = io_at("write", shown);
        let write = || {
            let folder = path.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(failed)
    }
}

/// The path of this machine's record.
fn file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))?;
    let machine = format!("{} {}", cpu_name(), env!("CARGO_PKG_VERSION"));
    let hash = blake3::hash(machine.as_bytes()).to_hex();
    let name = format!("costs-{}.json", &hash[..8]);
    Some(cache.join("kinograph").join(name))
}

/// The CPU's name, for display and to tell machines apart.
pub fn cpu_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {cores} cores")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kino_codec::Dtype;

    fn cost(codec: &str, frame: &str, frame_bytes: f64, decode_ns: f64) -> Cost {
        Cost {
            codec: codec.to_owned(),
            frame: frame.to_owned(),
            frame_bytes,
            ratio: 2.0,
            encode_ns: 10.0 * decode_ns,
            decode_ns,
            random_ns: decode_ns,
        }
    }

    fn record() -> CostRecord {
        CostRecord {
            costs: vec![
                cost("predict:level=3", "uint8[10, 10, 3]", 300.0, 600.0),
                cost("predict:level=3", "uint8[100, 100, 3]", 30_000.0, 30_000.0),
                cost("predict:level=9", "uint8[100, 90, 3]", 27_000.0, 54_000.0),
                cost("raw", "uint8[3]", 3.0, 1.0),
            ],
        }
    }

    fn decode_ns(codec: &str, shape: &[usize]) -> Option<f64> {
        let frame = FrameType::values(Dtype::U8, shape).unwrap();
        let found = record().cost(&codec.parse().unwrap(), &frame);
        found.map(|cost| cost.decode_ns)
    }

    #[test]
    fn missing_costs_are_scaled_from_the_nearest_measurement() {
        assert_eq!(decode_ns("predict:level=3", &[10, 10, 3]), Some(600.0));
        assert_eq!(decode_ns("predict:level=3", &[20, 10, 3]), Some(1200.0));
        assert_eq!(decode_ns("predict:level=3", &[90, 100, 3]), Some(27_000.0));
        assert_eq!(decode_ns("predict:level=9", &[10, 10, 3]), Some(600.0));
        assert_eq!(decode_ns("predict:level=5", &[100, 90, 3]), Some(54_000.0));
        assert_eq!(decode_ns("jpeg", &[10, 10, 3]), None);
    }

    #[test]
    fn a_record_is_saved_and_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/costs.json");
        record().save_to(&path).unwrap();
        record().save_to(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let read: CostRecord = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read, record());
        assert!(!cpu_name().is_empty());
    }
}
