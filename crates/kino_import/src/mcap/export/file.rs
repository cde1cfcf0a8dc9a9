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

pub(super) struct McapFile {
    out: Counted,
    chunk: Chunk,
    schemas: Vec<Vec<u8>>,
    channels: Vec<Vec<u8>>,
    /// How many messages each channel has.
    counts: BTreeMap<u16, u64>,
    /// The first and the last time.
    span: Option<(u64, u64)>,
    chunk_indexes: Vec<Vec<u8>>,
    metadata_indexes: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    span: Option<(u64, u64)>,
    /// Per channel, the timestamps and offsets of its messages.
    index: BTreeMap<u16, Vec<u64>>,
}

impl McapFile {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut out = Counted {
            file: BufWriter::with_capacity(1 << 18, File::create_new(path)?),
            at: 0,
            crc: crc32fast::Hasher::new(),
        };
        out.write(MAGIC)?;
        out.record(op::HEADER, &[text("ros2"), text("kinograph")].concat())?;
        Ok(Self {
            out,
            chunk: Chunk::default(),
            schemas: Vec::new(),
            channels: Vec::new(),
            counts: BTreeMap::new(),
            span: None,
            chunk_indexes: Vec::new(),
            metadata_indexes: Vec::new(),
        })
    }

    /// Adds a ROS 2 schema; returns its id.
    pub(super) fn schema(&mut self, name: &str, definition: &str) -> u16 {
        // 0 means that there is none.
        let id = u16::try_from(self.schemas.len() + 1).unwrap_or(u16::MAX);
        let texts = [text(name), text("ros2msg"), text(definition)].concat();
        let body = [&id.to_le_bytes()[..], &texts].concat();
        push_record(op::SCHEMA, &body, &mut self.chunk.bytes);
        self.schemas.push(body);
        id
    }

    /// Adds a channel for a topic; returns its id, or `None` if there are already 65536.
    pub(super) fn channel(&mut self, schema: u16, topic: &str) -> Option<u16> {
        let id = u16::try_from(self.channels.len()).ok()?;
        let ids = [id.to_le_bytes(), schema.to_le_bytes()].concat();
        let body = [ids, text(topic), text("cdr"), prefixed(&[])].concat();
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
        let (channel_id, sequence) = (channel.to_le_bytes(), sequence.to_le_bytes());
        let body = [&channel_id[..], &sequence, &u64s(&[time_ns; 2]), data].concat();
        let index = self.chunk.index.entry(channel).or_default();
        index.extend([time_ns, self.chunk.bytes.len() as u64]);
        push_record(op::MESSAGE, &body, &mut self.chunk.bytes);
        widen(&mut self.chunk.span, time_ns);
        widen(&mut self.span, time_ns);
        if self.chunk.bytes.len() >= CHUNK_BYTES {
            self.end_chunk()?;
        }
        Ok(())
    }

    pub(super) fn metadata(&mut self, name: &str, key: &str, value: &str) -> io::Result<()> {
        self.end_chunk()?;
        let start = self.out.at;
        let map = prefixed(&[text(key), text(value)].concat());
        self.out.record(op::METADATA, &[text(name), map].concat())?;
        let place = u64s(&[start, self.out.at - start]);
        self.metadata_indexes.push([place, text(name)].concat());
        Ok(())
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.bytes.is_empty() {
            return Ok(());
        }
        let (first, last) = chunk.span.unwrap_or_default();
        let stored = zstd::bulk::compress(&chunk.bytes, ZSTD_LEVEL)?;
        let (len, stored_len) = (chunk.bytes.len() as u64, stored.len() as u64);
        let head = [
            u64s(&[first, last, len]),
            crc32fast::hash(&chunk.bytes).to_le_bytes().to_vec(),
            text("zstd"),
            u64s(&[stored_len]),
        ];
        let start = self.out.at;
        let body = [&head.concat()[..], &stored].concat();
        self.out.record(op::CHUNK, &body)?;
        let end = self.out.at;
        let mut places = Vec::new();
        for (channel, messages) in &chunk.index {
            let channel = channel.to_le_bytes();
            places.extend([&channel[..], &u64s(&[self.out.at])].concat());
            let body = [&channel[..], &prefixed(&u64s(messages))].concat();
            self.out.record(op::MESSAGE_INDEX, &body)?;
        }
        let index = [
            u64s(&[first, last, start, end - start]),
            prefixed(&places),
            u64s(&[self.out.at - end]),
            text("zstd"),
            u64s(&[stored_len, len]),
        ];
        self.chunk_indexes.push(index.concat());
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
            (op::CHUNK_INDEX, &self.chunk_indexes),
            (op::METADATA_INDEX, &self.metadata_indexes),
        ];
        let mut offsets = Vec::new();
        for (opcode, bodies) in groups.iter().filter(|(_, bodies)| !bodies.is_empty()) {
            let start = self.out.at;
            for body in *bodies {
                self.out.record(*opcode, body)?;
            }
            let place = u64s(&[start, self.out.at - start]);
            offsets.push([&[*opcode][..], &place].concat());
        }
        let offsets_start = self.out.at;
        for body in &offsets {
            self.out.record(op::SUMMARY_OFFSET, body)?;
        }
        // The checksum covers the footer up to its own field.
        self.out.write(&[op::FOOTER])?;
        self.out.write(&u64s(&[20, start, offsets_start]))?;
        let crc = self.out.crc.clone().finalize();
        self.out.write(&crc.to_le_bytes())?;
        self.out.write(MAGIC)?;
        self.out.file.flush()
    }

    fn statistics(&self) -> Vec<u8> {
        let count = |records: &[_]| u32::try_from(records.len()).unwrap_or(u32::MAX);
        let schemas = u16::try_from(self.schemas.len()).unwrap_or(u16::MAX);
        let counts = [
            count(&self.channels),
            0, // attachments
            count(&self.metadata_indexes),
            count(&self.chunk_indexes),
        ];
        let (first, last) = self.span.unwrap_or_default();
        let by_channel = self.counts.iter();
        let by_channel = by_channel
            .flat_map(|(channel, count)| [&channel.to_le_bytes()[..], &u64s(&[*count])].concat());
        [
            u64s(&[self.counts.values().sum()]),
            schemas.to_le_bytes().to_vec(),
            counts.map(u32::to_le_bytes).concat(),
            u64s(&[first, last]),
            prefixed(&by_channel.collect::<Vec<_>>()),
        ]
        .concat()
    }
}

fn widen(span: &mut Option<(u64, u64)>, time_ns: u64) {
    let (first, last) = span.unwrap_or((time_ns, time_ns));
    *span = Some((first.min(time_ns), last.max(time_ns)));
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// Bytes after their length.
fn prefixed(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&len.to_le_bytes()[..], bytes].concat()
}

fn text(text: &str) -> Vec<u8> {
    prefixed(text.as_bytes())
}

fn push_record(opcode: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(opcode);
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

    fn record(&mut self, opcode: u8, body: &[u8]) -> io::Result<()> {
        self.write(&[opcode])?;
        self.write(&(body.len() as u64).to_le_bytes())?;
        self.write(body)
    }
}
