//! Writes an MCAP file: chunks of messages with an index each, and a summary at the end.
//!
//! ```text
//! magic │ header │ chunk (schemas, channels, messages) │ index per channel │ … │ metadata │ data end: crc
//! schemas │ channels │ statistics │ index of chunks │ index of metadata │ offsets │ footer: crc │ magic
//! ```
//!
//! Every record is `u8 opcode | u64 len | body`; see `records.rs` and `chunks.rs` for the bodies that are parsed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::super::records::op;
use super::super::scan::MAGIC;

/// A chunk is closed at this size.
const CHUNK_BYTES: usize = 1 << 20;

/// Fast: most bytes are already compressed images.
const ZSTD_LEVEL: i32 = 1;

/// A file.
pub(super) struct McapFile {
    out: Counted,
    chunk: Chunk,
    schemas: Vec<Vec<u8>>,
    channels: Vec<Vec<u8>>,
    /// How many messages each channel has.
    counts: BTreeMap<u16, u64>,
    /// The first and the last time.
    span: Option<(u64, u64)>,
    chunks: Vec<Vec<u8>>,
    metadata: Vec<Vec<u8>>,
}

/// The chunk being filled.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    span: Option<(u64, u64)>,
    /// Per channel, the timestamps and offsets of its messages.
    index: BTreeMap<u16, Vec<(u64, u64)>>,
}

impl McapFile {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut out = Counted {
            file: BufWriter::with_capacity(1 << 18, File::create_new(path)?),
            at: 0,
            crc: crc32fast::Hasher::new(),
        };
        out.write(MAGIC)?;
        let mut body = Vec::new();
        text("ros2", &mut body);
        text("kinograph", &mut body);
        out.record(op::HEADER, &body)?;
        Ok(Self {
            out,
            chunk: Chunk::default(),
            schemas: Vec::new(),
            channels: Vec::new(),
            counts: BTreeMap::new(),
            span: None,
            chunks: Vec::new(),
            metadata: Vec::new(),
        })
    }

    /// Adds a ROS 2 schema; returns its id.
    pub(super) fn schema(&mut self, name: &str, definition: &str) -> u16 {
        // 0 means that there is none.
        let id = u16::try_from(self.schemas.len() + 1).unwrap_or(u16::MAX);
        let mut body = id.to_le_bytes().to_vec();
        text(name, &mut body);
        text("ros2msg", &mut body);
        text(definition, &mut body);
        push_record(op::SCHEMA, &body, &mut self.chunk.bytes);
        self.schemas.push(body);
        id
    }

    /// Adds a channel for a topic; returns its id, or `None` if there are already 65536.
    pub(super) fn channel(&mut self, schema: u16, topic: &str) -> Option<u16> {
        let id = u16::try_from(self.channels.len()).ok()?;
        let mut body = id.to_le_bytes().to_vec();
        body.extend(schema.to_le_bytes());
        text(topic, &mut body);
        text("cdr", &mut body);
        prefixed(&[], &mut body);
        push_record(op::CHANNEL, &body, &mut self.chunk.bytes);
        self.channels.push(body);
        self.counts.insert(id, 0);
        Some(id)
    }

    /// Adds a message published and logged at `time_ns`.
    pub(super) fn message(&mut self, channel: u16, time_ns: u64, data: &[u8]) -> io::Result<()> {
        let count = self.counts.entry(channel).or_default();
        let sequence = u32::try_from(*count).unwrap_or(u32::MAX);
        *count += 1;
        let mut body = channel.to_le_bytes().to_vec();
        body.extend(sequence.to_le_bytes());
        body.extend(time_ns.to_le_bytes());
        body.extend(time_ns.to_le_bytes());
        body.extend_from_slice(data);
        let index = self.chunk.index.entry(channel).or_default();
        index.push((time_ns, self.chunk.bytes.len() as u64));
        push_record(op::MESSAGE, &body, &mut self.chunk.bytes);
        widen(&mut self.chunk.span, time_ns);
        widen(&mut self.span, time_ns);
        if self.chunk.bytes.len() >= CHUNK_BYTES {
            self.end_chunk()?;
        }
        Ok(())
    }

    /// Adds metadata.
    pub(super) fn metadata(&mut self, name: &str, values: &[(&str, &str)]) -> io::Result<()> {
        self.end_chunk()?;
        let (mut body, mut map) = (Vec::new(), Vec::new());
        text(name, &mut body);
        for (key, value) in values {
            text(key, &mut map);
            text(value, &mut map);
        }
        prefixed(&map, &mut body);
        let start = self.out.at;
        self.out.record(op::METADATA, &body)?;
        let mut index = start.to_le_bytes().to_vec();
        index.extend((self.out.at - start).to_le_bytes());
        text(name, &mut index);
        self.metadata.push(index);
        Ok(())
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.bytes.is_empty() {
            return Ok(());
        }
        let (first, last) = chunk.span.unwrap_or_default();
        let stored = zstd::bulk::compress(&chunk.bytes, ZSTD_LEVEL)?;
        let mut body = first.to_le_bytes().to_vec();
        body.extend(last.to_le_bytes());
        body.extend((chunk.bytes.len() as u64).to_le_bytes());
        body.extend(crc32fast::hash(&chunk.bytes).to_le_bytes());
        text("zstd", &mut body);
        body.extend((stored.len() as u64).to_le_bytes());
        body.extend_from_slice(&stored);
        let start = self.out.at;
        self.out.record(op::CHUNK, &body)?;
        let end = self.out.at;
        let mut places = Vec::new();
        for (channel, messages) in &chunk.index {
            places.extend(channel.to_le_bytes());
            places.extend(self.out.at.to_le_bytes());
            let pairs = messages.iter().flat_map(|(time_ns, at)| [*time_ns, *at]);
            let mut body = channel.to_le_bytes().to_vec();
            prefixed(
                &pairs.flat_map(u64::to_le_bytes).collect::<Vec<_>>(),
                &mut body,
            );
            self.out.record(op::MESSAGE_INDEX, &body)?;
        }
        let mut index = first.to_le_bytes().to_vec();
        for number in [last, start, end - start] {
            index.extend(number.to_le_bytes());
        }
        prefixed(&places, &mut index);
        index.extend((self.out.at - end).to_le_bytes());
        text("zstd", &mut index);
        index.extend((stored.len() as u64).to_le_bytes());
        index.extend((chunk.bytes.len() as u64).to_le_bytes());
        self.chunks.push(index);
        Ok(())
    }

    /// Writes the summary and footer.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end_chunk()?;
        let crc = self.out.crc.clone().finalize();
        self.out.record(op::DATA_END, &crc.to_le_bytes())?;
        let start = self.out.at;
        self.out.crc = crc32fast::Hasher::new();
        let statistics = vec![self.statistics()];
        let groups = [
            (op::SCHEMA, &self.schemas),
            (op::CHANNEL, &self.channels),
            (op::STATISTICS, &statistics),
            (op::CHUNK_INDEX, &self.chunks),
            (op::METADATA_INDEX, &self.metadata),
        ];
        let mut offsets = Vec::new();
        for (kind, bodies) in groups.iter().filter(|(_, bodies)| !bodies.is_empty()) {
            let start = self.out.at;
            for body in *bodies {
                self.out.record(*kind, body)?;
            }
            let mut body = vec![*kind];
            body.extend(start.to_le_bytes());
            body.extend((self.out.at - start).to_le_bytes());
            offsets.push(body);
        }
        let offsets_start = self.out.at;
        for body in &offsets {
            self.out.record(op::SUMMARY_OFFSET, body)?;
        }
        // The checksum covers the footer up to its own field.
        self.out.write(&[op::FOOTER])?;
        self.out.write(&20_u64.to_le_bytes())?;
        self.out.write(&start.to_le_bytes())?;
        self.out.write(&offsets_start.to_le_bytes())?;
        let crc = self.out.crc.clone().finalize();
        self.out.write(&crc.to_le_bytes())?;
        self.out.write(MAGIC)?;
        self.out.file.flush()
    }

    fn statistics(&self) -> Vec<u8> {
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        let messages: u64 = self.counts.values().sum();
        let mut body = messages.to_le_bytes().to_vec();
        let schemas = u16::try_from(self.schemas.len()).unwrap_or(u16::MAX);
        body.extend(schemas.to_le_bytes());
        body.extend(count(self.channels.len()));
        body.extend(count(0));
        body.extend(count(self.metadata.len()));
        body.extend(count(self.chunks.len()));
        let (first, last) = self.span.unwrap_or_default();
        body.extend(first.to_le_bytes());
        body.extend(last.to_le_bytes());
        let mut counts = Vec::new();
        for (channel, count) in &self.counts {
            counts.extend(channel.to_le_bytes());
            counts.extend(count.to_le_bytes());
        }
        prefixed(&counts, &mut body);
        body
    }
}

fn widen(span: &mut Option<(u64, u64)>, time_ns: u64) {
    let (first, last) = span.unwrap_or((time_ns, time_ns));
    *span = Some((first.min(time_ns), last.max(time_ns)));
}

/// Text, or bytes, after their length.
fn prefixed(bytes: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend(len.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn text(text: &str, out: &mut Vec<u8>) {
    prefixed(text.as_bytes(), out);
}

fn push_record(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend((body.len() as u64).to_le_bytes());
    out.extend_from_slice(body);
}

/// A file that tracks its length, and the checksum since the last reset.
struct Counted {
    file: BufWriter<File>,
    at: u64,
    crc: crc32fast::Hasher,
}

impl Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.crc.update(bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn record(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        self.write(&[kind])?;
        self.write(&(body.len() as u64).to_le_bytes())?;
        self.write(body)
    }
}
