//! A version's manifest: the contents of a dataset at one version, as human-readable JSON.
//!
//! ```text
//! {
//!   "kinograph": "dataset",
//!   "format": 1, …,
//!   "shards": [{"blake3": "9f2c…", "bytes": 134217728, "episodes": 512}, …],
//!   "id": "b1946ac9…"          ◀─ BLAKE3 of every byte before the comma of this line
//! }
//! ```
//!
//! The id is the last line, so any changed byte is detected, and it identifies the version: datasets with the same id
//! have the same episodes. A manifest refers to files by hash only.

use std::collections::HashSet;

use kino_codec::FrameType;
use kino_format::{FORMAT_VERSION, Kind, PACKED_VERSION, StreamSchema, variant_name};
use serde::{Deserialize, Serialize};

use crate::commit::Made;
use crate::error::{DatasetError, Result, codec_at, corrupt, format_at, invalid};
use crate::generation::Generation;
use crate::hash::Hash;
use crate::links::Links;
use crate::plan::SignalEvidence;
use crate::resize::Size;
use crate::writer_options::to_time;

/// Upper limit of the size of a manifest.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// The highest version number: the largest integer that every JSON reader represents exactly.
pub(crate) const MAX_VERSION: u64 = (1 << 53) - 1;

/// Upper limit of sums over a manifest: what a signed 64-bit integer holds.
const MAX_SUM: u64 = i64::MAX as u64;

/// The text between the last field and the id.
const TRAILER_START: &str = ",\n  \"id\": \"";
const TRAILER_END: &str = "\"\n}\n";
const TRAILER_LEN: usize = TRAILER_START.len() + 64 + TRAILER_END.len();

/// The contents of a dataset at one version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always `dataset`.
    kinograph: String,
    /// The format version of the writer.
    pub format: u16,
    /// The lowest reader version that may read this version.
    pub min_reader: u16,
    /// The number of the version, from 1.
    pub version: u64,
    /// The id of the version that this one is based on.
    pub parent: Option<String>,
    /// When it was created, in RFC 3339, UTC.
    pub created: String,
    /// The program that created it.
    pub tool: String,
    /// Why it was created, in one line.
    pub message: String,
    /// Metadata of the whole dataset, from the source (`env_args`, …).
    #[serde(default)]
    pub attributes: serde_json::Map<String, serde_json::Value>,
    /// Every stream that any episode has.
    pub streams: Vec<StreamSummary>,
    /// The episode table.
    pub episodes: TableRef,
    /// The shards, each with at least one episode of the table.
    pub shards: Vec<ShardRef>,
    /// The statistics.
    pub stats: FileRef,
    /// The files that pages are linked to; absent if every page is in the dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
}

/// A stream of the dataset, over all shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamSummary {
    /// The path inside an episode.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its dtype by numpy's name, or `text`.
    pub dtype: String,
    /// The shape of one frame.
    pub shape: Vec<usize>,
    /// The codecs it is stored with.
    pub codecs: Vec<String>,
    /// The number of episodes that have it.
    pub episodes: u64,
    /// The total number of frames.
    pub frames: u64,
    /// Bytes of its frames before encoding.
    pub raw_bytes: u64,
    /// Bytes of its pages.
    pub bytes: u64,
    /// Largest difference between a decoded and an original value; 0 if lossless.
    pub max_abs_error: f64,
    /// Sum of the squared errors of the values in its own pages; 0 if lossless.
    pub sum_squared_error: f64,
    /// The number of values in its own pages.
    pub stored_values: u64,
    /// The number of frames that are bit-exact although the codec is lossy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub protected_frames: u64,
    /// Bytes of its pages that are not in the dataset but in linked files.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub linked_bytes: u64,
    /// The libraries outside Kinograph that encoded it, with their versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encoders: Vec<String>,
    /// The sizes of its frames before they were resized, the oldest first; empty if they have the recorded size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resized_from: Vec<Size>,
    /// The lossy encodings that its frames went through before this one, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generations: Vec<Generation>,
    /// What was measured before a `signal(…)` bound made it lossy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalEvidence>,
    /// The stream that this is another encoding of: `wrist@small` of `wrist`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant_of: Option<String>,
}

impl StreamSummary {
    /// The type of its frames.
    pub(crate) fn frame_type(&self) -> Result<FrameType> {
        let schema = StreamSchema {
            name: self.name.clone(),
            kind: self.kind,
            dtype: self.dtype.clone(),
            shape: self.shape.clone(),
            codec: String::new(),
            variant_of: None,
        };
        schema.frame_type().map_err(format_at("manifest"))
    }

    /// The name of the variant: `small` of `wrist@small`; `None` if the stream is none.
    pub fn variant(&self) -> Option<&str> {
        variant_name(&self.name, self.variant_of.as_deref()?)
    }

    /// Fails if this process cannot decode the stream, because of a library that is missing.
    pub(crate) fn check_decoder(&self) -> Result<()> {
        let frame = self.frame_type()?;
        for codec in &self.codecs {
            let place = || format!("stream `{}`", self.name);
            // A codec that is unknown is an error of the page that has it.
            if let Ok(codec) = kino_codec::codec(codec) {
                codec.check_decoder(&frame).map_err(codec_at(place()))?;
            }
        }
        Ok(())
    }

    /// Refuses a name or type that no shard can have, and invalid error measures.
    fn check(&self) -> Result<(), String> {
        let schema = StreamSchema {
            name: self.name.clone(),
            kind: self.kind,
            dtype: self.dtype.clone(),
            shape: self.shape.clone(),
            codec: "raw".to_owned(),
            variant_of: self.variant_of.clone(),
        };
        schema.check().map_err(|error| error.to_string())?;
        let errors = [self.max_abs_error, self.sum_squared_error];
        let earlier = self.generations.iter().filter_map(|one| one.max_abs_error);
        if errors
            .into_iter()
            .chain(earlier)
            .any(|error| !(0.0..).contains(&error))
        {
            return Err(format!("stream `{}` has a negative error", self.name));
        }
        Ok(())
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A file by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// BLAKE3 of the file, in hex.
    pub blake3: Hash,
    /// Its length.
    pub bytes: u64,
}

/// The episode table by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRef {
    /// BLAKE3 of the file, in hex.
    pub blake3: Hash,
    /// Its length.
    pub bytes: u64,
    /// The number of rows.
    pub count: u64,
}

/// A shard by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRef {
    /// BLAKE3 of the file, in hex.
    pub blake3: Hash,
    /// Its length.
    pub bytes: u64,
    /// The number of episodes in it, including those that no row references any more.
    pub episodes: u64,
}

impl Manifest {
    /// An empty manifest for the version after `parent`.
    pub(crate) fn next(
        parent: Option<&(Self, String)>,
        episodes: TableRef,
        stats: FileRef,
        made: Made<'_>,
    ) -> Self {
        let mut next = Self {
            kinograph: "dataset".to_owned(),
            format: PACKED_VERSION,
            min_reader: PACKED_VERSION,
            // `to_bytes` refuses a number beyond the last.
            version: parent.map_or(1, |(manifest, _)| manifest.version.saturating_add(1)),
            parent: parent.map(|(_, id)| id.clone()),
            created: to_time(made.created),
            tool: concat!("kinograph ", env!("CARGO_PKG_VERSION")).to_owned(),
            message: made.message.to_owned(),
            attributes: parent
                .map(|(manifest, _)| manifest.attributes.clone())
                .unwrap_or_default(),
            streams: Vec::new(),
            episodes,
            shards: parent
                .map(|(manifest, _)| manifest.shards.clone())
                .unwrap_or_default(),
            stats,
            links: None,
        };
        if let Some(links) = parent.and_then(|(manifest, _)| manifest.links.clone()) {
            next.link(links);
        }
        next
    }

    /// Links to files, which only newer readers understand.
    pub(crate) fn link(&mut self, links: Links) {
        self.links = Some(links);
        self.format = FORMAT_VERSION;
        self.min_reader = FORMAT_VERSION;
    }

    /// Bytes of all files that the version references: shards, table and statistics.
    pub fn total_bytes(&self) -> u64 {
        let shards = self.shards.iter().map(|shard| shard.bytes);
        shards.fold(
            self.episodes.bytes.saturating_add(self.stats.bytes),
            u64::saturating_add,
        )
    }

    /// The bytes of the file, and the version's id.
    pub(crate) fn to_bytes(&self) -> Result<(Vec<u8>, String)> {
        self.check()
            .map_err(|what| invalid(format!("cannot write version {}: {what}", self.version)))?;
        self.print()
    }

    /// The same for a manifest that is known to be valid.
    pub(crate) fn print(&self) -> Result<(Vec<u8>, String)> {
        let text =
            serde_json::to_string_pretty(self).map_err(|error| invalid(error.to_string()))?;
        let body = text.strip_suffix("\n}").unwrap_or(&text);
        let id = blake3::hash(body.as_bytes()).to_hex().to_string();
        Ok((
            format!("{body}{TRAILER_START}{id}{TRAILER_END}").into_bytes(),
            id,
        ))
    }

    /// Parses the manifest of `version` from its (untrusted) bytes and returns it with its id; `place` is for
    /// messages.
    pub fn parse(place: &str, bytes: &[u8], version: u64) -> Result<(Self, String)> {
        let id = check_trailer(bytes).map_err(|what| corrupt(place, what))?;
        // The reader version first: the rest of a newer manifest may look like anything.
        let header: Header =
            serde_json::from_slice(bytes).map_err(|error| corrupt(place, error.to_string()))?;
        if header.kinograph != "dataset" {
            return Err(corrupt(place, "it is not the manifest of a dataset"));
        }
        if header.min_reader > FORMAT_VERSION {
            let (found, supported) = (header.min_reader, FORMAT_VERSION);
            return Err(DatasetError::TooNew {
                place: place.to_owned(),
                found,
                supported,
            });
        }
        let manifest: Self =
            serde_json::from_slice(bytes).map_err(|error| corrupt(place, error.to_string()))?;
        if manifest.version != version {
            return Err(corrupt(
                place,
                format!("it claims to be version {}", manifest.version),
            ));
        }
        manifest.check().map_err(|what| corrupt(place, what))?;
        Ok((manifest, id))
    }

    /// Refuses what is invalid in the manifest alone, so that code that adds up counts or looks up names need not
    /// check.
    fn check(&self) -> Result<(), String> {
        if !(1..=MAX_VERSION).contains(&self.version) {
            return Err(format!(
                "version {} is out of range: version numbers go from 1 to {MAX_VERSION}",
                self.version
            ));
        }
        let mut shards = HashSet::new();
        if let Some(twice) = self
            .shards
            .iter()
            .find(|shard| !shards.insert(shard.blake3))
        {
            return Err(format!("shard {} is listed twice", twice.blake3.to_hex()));
        }
        let mut names = HashSet::new();
        for stream in &self.streams {
            stream.check()?;
            if !names.insert(&stream.name) {
                return Err(format!("stream `{}` is listed twice", stream.name));
            }
        }
        if let Some(links) = &self.links {
            links.check()?;
            if self.min_reader <= PACKED_VERSION {
                return Err(
                    "it links to files, which readers of its version do not know".to_owned(),
                );
            }
        }
        self.check_sums()
    }

    fn check_sums(&self) -> Result<(), String> {
        let tables = [self.episodes.bytes, self.stats.bytes];
        let files = self.shards.iter().map(|shard| shard.bytes).chain(tables);
        let counted = self.shards.iter().map(|shard| shard.episodes);
        let counted = counted.chain([self.episodes.count]);
        let sums: [fn(&StreamSummary) -> u64; 7] = [
            |stream| stream.episodes,
            |stream| stream.frames,
            |stream| stream.raw_bytes,
            |stream| stream.bytes,
            |stream| stream.stored_values,
            |stream| stream.protected_frames,
            |stream| stream.linked_bytes,
        ];
        let mut streams = sums.iter().map(|number| self.streams.iter().map(number));
        if fits(files) && fits(counted) && streams.all(fits) {
            return Ok(());
        }
        Err(format!("its counts add up to more than {MAX_SUM}"))
    }
}

/// Whether the sum fits into what every reader can hold.
fn fits(mut numbers: impl Iterator<Item = u64>) -> bool {
    let sum = numbers.try_fold(0_u64, u64::checked_add);
    sum.is_some_and(|sum| sum <= MAX_SUM)
}

/// The fields that readers of every version must find.
#[derive(Deserialize)]
struct Header {
    kinograph: String,
    min_reader: u16,
}

/// Checks the last line against the bytes before it and returns the id.
fn check_trailer(bytes: &[u8]) -> Result<String, String> {
    let missing = || "its last line is not the id; the file may be truncated".to_owned();
    let split = bytes.len().checked_sub(TRAILER_LEN).ok_or_else(missing)?;
    let (body, trailer) = bytes.split_at(split);
    let stored = std::str::from_utf8(trailer)
        .ok()
        .and_then(|text| text.strip_prefix(TRAILER_START)?.strip_suffix(TRAILER_END))
        .ok_or_else(missing)?;
    let computed = blake3::hash(body).to_hex();
    if stored != computed.as_str() {
        return Err(format!(
            "its stored id is {stored:.16}…, but its text has id {computed:.16}…"
        ));
    }
    Ok(stored.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn made(message: &str) -> Made<'_> {
        let created = SystemTime::UNIX_EPOCH;
        Made { message, created }
    }

    fn manifest() -> Manifest {
        let hash = Hash::of(b"table");
        let table = TableRef {
            blake3: hash,
            bytes: 5,
            count: 0,
        };
        let mut manifest = Manifest::next(
            None,
            table,
            FileRef {
                blake3: hash,
                bytes: 5,
            },
            made("test"),
        );
        manifest.streams.push(StreamSummary {
            name: "obs/é".to_owned(),
            kind: Kind::Vector,
            dtype: "float32".to_owned(),
            shape: vec![7],
            codecs: vec!["raw".to_owned()],
            episodes: 1,
            frames: 2,
            raw_bytes: 56,
            bytes: 30,
            max_abs_error: 0.1,
            sum_squared_error: 1e-300,
            stored_values: 14,
            protected_frames: 0,
            linked_bytes: 0,
            encoders: vec!["libsvtav1, libavcodec 62.28.102".to_owned()],
            resized_from: vec![Size {
                height: 480,
                width: 640,
            }],
            generations: vec![Generation {
                codec: "vector:abs=1e-3".to_owned(),
                max_abs_error: Some(1e-3),
                psnr_db: None,
            }],
            signal: None,
            variant_of: None,
        });
        manifest
    }

    #[test]
    fn a_manifest_round_trips_and_its_id_is_the_last_line() {
        let (bytes, id) = manifest().to_bytes().unwrap();
        assert_eq!(
            Manifest::parse("m", &bytes, 1).unwrap(),
            (manifest_at(&bytes), id.clone())
        );
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.ends_with(&format!("  \"id\": \"{id}\"\n}}\n")));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["id"], id);
    }

    fn manifest_at(bytes: &[u8]) -> Manifest {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn flipping_any_bit_or_truncating_anywhere_is_an_error() {
        let (bytes, _) = manifest().to_bytes().unwrap();
        for position in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[position / 8] ^= 1 << (position % 8);
            let error = Manifest::parse("versions/1", &flipped, 1).unwrap_err();
            assert!(error.to_string().contains("versions/1"), "bit {position}");
        }
        for len in 0..bytes.len() {
            assert!(
                Manifest::parse("m", &bytes[..len], 1).is_err(),
                "{len} bytes"
            );
        }
        assert!(Manifest::parse("m", &bytes, 2).is_err());
    }

    #[test]
    fn counts_that_overflow_or_are_out_of_range_are_refused_when_reading_and_writing() {
        let shard = |bytes| ShardRef {
            blake3: Hash::of(&u64::to_le_bytes(bytes)),
            bytes,
            episodes: 1,
        };
        let lies: [fn(&mut Manifest); 7] = [
            |manifest| manifest.version = MAX_VERSION + 1,
            |manifest| manifest.episodes.bytes = u64::MAX,
            |manifest| manifest.streams[0].frames = u64::MAX,
            |manifest| manifest.streams[0].max_abs_error = -1.0,
            |manifest| manifest.streams[0].dtype = "float99".to_owned(),
            |manifest| manifest.streams.push(manifest.streams[0].clone()),
            |manifest| manifest.shards.push(manifest.shards[0].clone()),
        ];
        for (idx, lie) in lies.iter().enumerate() {
            let mut lying = manifest();
            lying.shards = vec![shard(1), shard(2)];
            assert!(lying.to_bytes().is_ok());
            lie(&mut lying);
            assert!(lying.to_bytes().is_err(), "lie {idx}");
            let (bytes, _) = lying.print().unwrap();
            let error = Manifest::parse("here", &bytes, lying.version).unwrap_err();
            assert!(error.to_string().contains("here"), "lie {idx}: {error}");
        }
        let mut last = manifest();
        last.version = MAX_VERSION;
        let (episodes, stats) = (last.episodes.clone(), last.stats.clone());
        let next = Manifest::next(Some(&(last, String::new())), episodes, stats, made(""));
        let error = next.to_bytes().unwrap_err();
        assert!(error.to_string().contains("version numbers go"), "{error}");
    }

    #[test]
    fn a_newer_manifest_names_the_reader_it_needs() {
        let mut newer = manifest();
        newer.min_reader = 9;
        let (bytes, _) = newer.to_bytes().unwrap();
        let error = Manifest::parse("m", &bytes, 1).unwrap_err();
        assert!(
            matches!(error, DatasetError::TooNew { found: 9, .. }),
            "{error}"
        );
    }
}
