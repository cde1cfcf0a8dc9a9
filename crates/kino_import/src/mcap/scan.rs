//! One pass through a file, from its first byte to its last.
//!
//! ```text
//! 89 M C A P 30 0D 0A │ u8 opcode │ u64 len │ body … │ u8 opcode │ … │ 89 M C A P 30 0D 0A
//!                       schemas, channels, chunks, messages, attachments, metadata, footer
//! ```
//!
//! A killed recorder leaves a file without its end. Records are read in file order, so such a file yields everything
//! that was finished. If there is a summary, its schemas and channels come first: a damaged chunk then costs only its
//! messages, not the schemas of all messages after it. The chunk index is not needed: the walk reads every message
//! anyway, for the stamp inside it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::bytes::{Bytes, to_time, to_usize};
use super::chunks::{Chunk, Compression, MAX_CHUNK_BYTES, Stored, max_unpacked_bytes};
use super::records::{Fault, Place, name, next, op, plain};
use super::summary;
use super::topic::Entry;
use super::walk::Walk;
use crate::files;

/// The magic bytes at the start and end of a file.
pub(super) const MAGIC: &[u8; 8] = b"\x89MCAP0\r\n";

/// Every record starts with an opcode and a length.
pub(super) const HEAD_BYTES: u64 = 9;

/// The header of a message: channel, sequence number, two timestamps.
const MESSAGE_HEAD_BYTES: usize = 22;

/// Consecutive messages outside of chunks are read together up to this many bytes.
const RUN_BYTES: u64 = 1 << 20;

/// A small file may have this many messages, however well they compress.
const MIN_MESSAGES: u64 = 1 << 20;

/// Reads the whole file and passes on what it contains; returns the chunks.
pub(super) fn scan(path: &Path, walk: &mut Walk<'_>) -> io::Result<Vec<Chunk>> {
    let (mut file, len) = files::open_with_len(path)?;
    summary::tell_channels(&mut file, len, walk)?;
    let mut scan = Scan {
        file: BufReader::with_capacity(1 << 20, file),
        at: 0,
        len,
        crc: crc32fast::Hasher::new(),
        chunks: Vec::new(),
        is_run: false,
        unpacked: 0,
        messages: 0,
        faults: 0,
        walk,
    };
    let mut magic = Vec::new();
    scan.read(MAGIC.len() as u64, &mut magic)?;
    if magic != MAGIC {
        scan.lose(0, "is not the start of an MCAP file");
        return Ok(scan.chunks);
    }
    scan.all()?;
    Ok(scan.chunks)
}

struct Scan<'a, 'm> {
    file: BufReader<File>,
    /// Where the next byte is.
    at: u64,
    len: u64,
    /// CRC of everything so far.
    crc: crc32fast::Hasher,
    chunks: Vec<Chunk>,
    /// Whether the last chunk is a run of messages that may still grow.
    is_run: bool,
    /// Decompressed bytes of all chunks so far.
    unpacked: u64,
    messages: u64,
    faults: u64,
    walk: &'a mut Walk<'m>,
}

struct Head {
    start: u64,
    opcode: u8,
    len: u64,
    /// The checksum of everything before the record.
    crc: crc32fast::Hasher,
}

impl Scan<'_, '_> {
    fn all(&mut self) -> io::Result<()> {
        let mut body = Vec::new();
        while let Some(head) = self.head()? {
            let (start, kind) = (head.start, name(head.opcode));
            if head.len > MAX_CHUNK_BYTES {
                let len = head.len;
                self.lose(
                    start,
                    format!("is {kind} of {len} bytes; the limit is {MAX_CHUNK_BYTES}"),
                );
                self.skip(len)?;
                continue;
            }
            self.read(head.len, &mut body)?;
            match head.opcode {
                op::FOOTER => return self.footer(),
                op::DATA_END => self.check_data(head, &body),
                opcode => {
                    if let Err(what) = self.record(opcode, start, &body) {
                        self.lose(start, format!("is {kind}, which {what}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// The start of the next record, if the file has the whole record.
    fn head(&mut self) -> io::Result<Option<Head>> {
        let start = self.at;
        if start == self.len {
            let what = "is the end of the file, without a footer: the recorder was stopped";
            self.note(start, what);
            return Ok(None);
        }
        if self.len - start < HEAD_BYTES {
            self.cut(start, "an entry");
            return Ok(None);
        }
        let (crc, mut bytes) = (self.crc.clone(), Vec::new());
        self.read(HEAD_BYTES, &mut bytes)?;
        let mut parts = Bytes::new(&bytes);
        let (Ok(opcode), Ok(len)) = (parts.u8(), parts.u64()) else {
            return Ok(None);
        };
        if len > self.len - self.at {
            self.cut(start, name(opcode));
            return Ok(None);
        }
        if opcode == 0 {
            self.lose(start, "is not a valid record; nothing after it is read");
            return Ok(None);
        }
        Ok(Some(Head {
            start,
            opcode,
            len,
            crc,
        }))
    }

    /// One record outside of chunks.
    fn record(&mut self, opcode: u8, start: u64, body: &[u8]) -> Result<(), String> {
        match opcode {
            op::MESSAGE => {
                let chunk = self.run(start, start + HEAD_BYTES + body.len() as u64);
                let offset = start + HEAD_BYTES - self.chunks[chunk].start;
                self.message(chunk, to_usize(offset), body)
            }
            op::CHUNK => self.chunk(start, body),
            op::STATISTICS => {
                let (count, messages) = (Bytes::new(body).u64()?, self.messages);
                if count != messages && self.faults == 0 {
                    self.note(
                        start,
                        format!("says that the file has {count} messages, but it has {messages}"),
                    );
                }
                Ok(())
            }
            _ => plain(opcode, body, self.walk),
        }
    }

    /// The chunk that a message outside of chunks is read with.
    fn run(&mut self, start: u64, end: u64) -> usize {
        match self.chunks.last_mut() {
            Some(run) if self.is_run && end - run.start <= RUN_BYTES => {
                run.len = end - run.start;
                run.stored = run.len;
            }
            _ => {
                self.is_run = true;
                self.chunks.push(Chunk {
                    start,
                    stored: end - start,
                    len: end - start,
                    compression: Compression::None,
                });
            }
        }
        self.chunks.len() - 1
    }

    fn chunk(&mut self, start: u64, body: &[u8]) -> Result<(), String> {
        self.is_run = false;
        let stored = Stored::parse(body)?;
        self.unpacked = self.unpacked.saturating_add(stored.len);
        let most = max_unpacked_bytes(self.len);
        let bytes = if self.unpacked <= most {
            stored.unpack()
        } else {
            Err(format!(
                "is not decompressed: the chunks up to here have more than {most} bytes, far more than the file"
            ))
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(what) => {
                let what = format!("is a chunk that {what}; its messages are not imported");
                self.fault(Fault {
                    log_ns: Some(to_time(stored.start_ns)),
                    ..Fault::at(start, what)
                });
                return Ok(());
            }
        };
        let before = stored.bytes.as_ptr().addr() - body.as_ptr().addr();
        self.chunks.push(Chunk {
            start: start + HEAD_BYTES + before as u64,
            stored: stored.bytes.len() as u64,
            len: stored.len,
            compression: stored.compression,
        });
        let mut rest = Bytes::new(&bytes);
        while !rest.is_empty() {
            let (opcode, body) = next(&mut rest)?;
            match opcode {
                op::MESSAGE => {
                    let offset = bytes.len() - rest.len() - body.len();
                    self.message(self.chunks.len() - 1, offset, body)?;
                }
                op::SCHEMA | op::CHANNEL => plain(opcode, body, self.walk)?,
                0 => return Err("has an invalid record".to_owned()),
                _ => {}
            }
        }
        Ok(())
    }

    fn message(&mut self, chunk: usize, offset: usize, body: &[u8]) -> Result<(), String> {
        let mut parts = Bytes::new(body);
        let (channel, _sequence) = (parts.u16()?, parts.u32()?);
        let (log_ns, publish_ns) = (to_time(parts.u64()?), to_time(parts.u64()?));
        let data = parts.take(parts.len())?;
        let number =
            |place| u32::try_from(place).map_err(|_| "is too far into the file".to_owned());
        let place = Place {
            chunk: number(chunk)?,
            offset: number(offset + MESSAGE_HEAD_BYTES)?,
            len: number(data.len())?,
        };
        // Timestamps alone have some entropy: only a bomb has a message for every two bytes, and each message is
        // indexed.
        if self.messages > MIN_MESSAGES + self.len / 2 {
            return Err("has more messages than a file of this size can hold".to_owned());
        }
        self.messages += 1;
        let entry = Entry {
            log_ns,
            publish_ns,
            stamp_ns: 0,
            place,
        };
        self.walk.message(channel, entry, data);
        Ok(())
    }

    fn footer(&mut self) -> io::Result<()> {
        let (start, mut magic) = (self.at, Vec::new());
        self.read(MAGIC.len() as u64, &mut magic)?;
        if magic != MAGIC {
            let what = "is not the end of an MCAP file, although a footer precedes it";
            self.note(start, what);
        }
        Ok(())
    }

    /// Verifies the checksum of the data section.
    fn check_data(&mut self, end: Head, body: &[u8]) {
        let stored = Bytes::new(body).u32().unwrap_or(0);
        let computed = end.crc.finalize();
        // A damaged chunk was already reported.
        if stored != 0 && stored != computed && self.faults == 0 {
            self.note(
                end.start,
                format!(
                    "ends data that is damaged: checksum {stored:08x}, computed {computed:08x}"
                ),
            );
        }
    }

    fn cut(&mut self, start: u64, what: &str) {
        let before = match self.messages {
            1 => "the message before it is imported".to_owned(),
            messages => format!("the {messages} messages before it are imported"),
        };
        self.lose(
            start,
            format!("starts {what} that is truncated by the end of the file; {before}"),
        );
    }

    /// Reports a fault that prevents something from being imported.
    fn lose(&mut self, at: u64, what: impl Into<String>) {
        self.fault(Fault::at(at, what));
    }

    /// Reports a fault that loses nothing.
    fn note(&mut self, at: u64, what: impl Into<String>) {
        self.fault(Fault {
            is_loss: false,
            ..Fault::at(at, what)
        });
    }

    fn fault(&mut self, fault: Fault) {
        self.faults += 1;
        self.walk.fault(fault);
    }

    /// Reads the next `len` bytes, fewer only at the end of the file.
    fn read(&mut self, len: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        self.at += self.file.by_ref().take(len).read_to_end(out)? as u64;
        self.crc.update(out);
        Ok(())
    }

    fn skip(&mut self, len: u64) -> io::Result<()> {
        let (end, mut part) = (self.at + len, Vec::new());
        while self.at < end {
            let before = self.at;
            self.read((end - before).min(RUN_BYTES), &mut part)?;
            if self.at == before {
                break;
            }
        }
        Ok(())
    }
}
