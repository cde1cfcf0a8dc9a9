//! Writes an episode as an Example in a TFRecord file; `rlds/example.rs` and `rlds/tfrecord.rs` show the formats.
//!
//! ```text
//! values ──▶ spool: the lists, one after another ──▶ lengths are known ──▶ length, checksum, body, checksum
//! ```
//!
//! A protocol buffer states the length of everything before its content, and encoded images have unpredictable lengths:
//! lists are spooled to a file, so memory does not grow with the episode.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use kino_codec::Dtype;
use kino_dataset::Stream;

use super::leaves::{Form, Leaf};
use super::numbered;
use crate::error::{Result, invalid};
use crate::export::{FrameReader, StreamOutline, WritingPath, create_new};
use crate::rlds::tfrecord::{MAX_BODY_LEN, mask};
use crate::values::integer;

/// The number of a field of a protocol buffer, with what says that a length follows.
const BYTES_LIST: u8 = 1 << 3 | 2;
const FLOAT_LIST: u8 = 2 << 3 | 2;
const INT_LIST: u8 = 3 << 3 | 2;

/// The field 1 and the field 2, with a length.
const ONE: u8 = 1 << 3 | 2;
const TWO: u8 = 2 << 3 | 2;

pub(super) struct Body {
    path: PathBuf,
    spool: BufWriter<File>,
    at: u64,
    lists: Vec<List>,
}

struct List {
    name: String,
    kind: u8,
    place: Range<u64>,
}

impl Body {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        let spool = options.read(true).write(true).create_new(true).open(path);
        Ok(Self {
            path: path.to_owned(),
            spool: BufWriter::with_capacity(1 << 18, spool.writing(path)?),
            at: 0,
            lists: Vec::new(),
        })
    }

    /// Resets for the next episode.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.lists.clear();
        self.at = 0;
        let done = self.spool.seek(SeekFrom::Start(0));
        let done = done.and_then(|_| self.spool.get_ref().set_len(0));
        done.writing(&self.path)
    }

    /// Writes the frames of a stream.
    pub(super) fn stream(
        &mut self,
        leaf: &Leaf,
        stream: &StreamOutline,
        source: &Stream,
        reader: &mut FrameReader<'_>,
    ) -> Result<()> {
        let name = &leaf.step_name();
        match &leaf.form {
            Form::Text => {
                let texts = reader.texts(source)?;
                self.texts(name, &texts.iter().map(String::as_str).collect::<Vec<_>>())
            }
            Form::Image { .. } => {
                let Some(form) = stream.image_form() else {
                    return Ok(());
                };
                let start = self.at;
                reader.each_image(source, &form, |_, file| self.put_bytes(file))?;
                self.end(name, BYTES_LIST, start)
            }
            Form::Raw { .. } => {
                let start = self.at;
                let row = source
                    .frame_type()
                    .as_values()
                    .map_or(0, |ty| ty.frame_bytes());
                reader.each_block(source, |_, block| {
                    let mut rows = block.chunks_exact(row.max(1));
                    rows.try_for_each(|row| self.put_bytes(row))
                })?;
                self.end(name, BYTES_LIST, start)
            }
            Form::Numbers { dtype, .. } => {
                let start = self.at;
                reader.each_block(source, |_, block| self.put(&packed(*dtype, block)))?;
                let kind = if dtype.is_float() {
                    FLOAT_LIST
                } else {
                    INT_LIST
                };
                self.end(name, kind, start)
            }
        }
    }

    pub(super) fn texts(&mut self, name: &str, texts: &[&str]) -> Result<()> {
        let start = self.at;
        for text in texts {
            self.put_bytes(text.as_bytes())?;
        }
        self.end(name, BYTES_LIST, start)
    }

    pub(super) fn ints(&mut self, name: &str, values: impl Iterator<Item = i64>) -> Result<()> {
        let (start, mut packed) = (self.at, Vec::new());
        values.for_each(|value| varint(value.cast_unsigned(), &mut packed));
        self.put(&packed)?;
        self.end(name, INT_LIST, start)
    }

    pub(super) fn floats(&mut self, name: &str, values: impl Iterator<Item = f32>) -> Result<()> {
        let start = self.at;
        let packed: Vec<_> = values.flat_map(f32::to_le_bytes).collect();
        self.put(&packed)?;
        self.end(name, FLOAT_LIST, start)
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(&head(ONE, bytes.len() as u64))?;
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.spool.write_all(bytes);
        written.writing(&self.path)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self, name: &str, kind: u8, start: u64) -> Result<()> {
        self.lists.push(List {
            name: name.to_owned(),
            kind,
            place: start..self.at,
        });
        Ok(())
    }

    /// The length of the Example, and the header of each list in it.
    fn heads(&mut self) -> (u64, Vec<Vec<u8>>) {
        self.lists.sort_by(|a, b| a.name.cmp(&b.name));
        let (mut total, mut heads) = (0, Vec::new());
        for list in &self.lists {
            let len = list.place.end - list.place.start;
            // Numeric values are packed into one field; byte strings already have one each.
            let packed = match list.kind {
                BYTES_LIST => Vec::new(),
                _ if len == 0 => Vec::new(),
                _ => head(ONE, len),
            };
            let list_len = packed.len() as u64 + len;
            let feature = head(list.kind, list_len);
            let feature_len = feature.len() as u64 + list_len;
            let name = [
                head(ONE, list.name.len() as u64),
                list.name.clone().into_bytes(),
            ]
            .concat();
            let value = head(TWO, feature_len);
            let entry_len = (name.len() + value.len()) as u64 + feature_len;
            let entry = head(ONE, entry_len);
            total += entry.len() as u64 + entry_len;
            heads.push([entry, name, value, feature, packed].concat());
        }
        let features = head(ONE, total);
        total += features.len() as u64;
        if let Some(first) = heads.first_mut() {
            *first = [features, std::mem::take(first)].concat();
        }
        (total, heads)
    }

    /// Copies the Example, after its length and before its checksum.
    fn write(&mut self, heads: &[Vec<u8>], len: u64, out: &mut impl Write) -> io::Result<()> {
        let length = len.to_le_bytes();
        out.write_all(&length)?;
        out.write_all(&mask(crc32c::crc32c(&length)).to_le_bytes())?;
        self.spool.flush()?;
        let (mut crc, mut part) = (0, vec![0; 1 << 18]);
        for (list, head) in self.lists.iter().zip(heads) {
            crc = crc32c::crc32c_append(crc, head);
            out.write_all(head)?;
            let file = self.spool.get_mut();
            file.seek(SeekFrom::Start(list.place.start))?;
            let mut left = list.place.end - list.place.start;
            while left > 0 {
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
                file.read_exact(&mut part[..most])?;
                crc = crc32c::crc32c_append(crc, &part[..most]);
                out.write_all(&part[..most])?;
                left -= most as u64;
            }
        }
        out.write_all(&mask(crc).to_le_bytes())
    }
}

pub(super) struct SplitFiles {
    /// What all names begin with.
    stem: PathBuf,
    open: Option<(BufWriter<File>, u64)>,
    /// A file of this size gets no more episodes.
    max_bytes: u64,
    /// How many episodes each file has.
    lengths: Vec<u64>,
    bytes: u64,
}

impl SplitFiles {
    pub(super) fn new(stem: PathBuf, max_bytes: u64) -> Self {
        Self {
            stem,
            open: None,
            max_bytes,
            lengths: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds an episode to the last file, or to a new one if that is full.
    pub(super) fn add(&mut self, body: &mut Body, id: &str) -> Result<()> {
        let (len, heads) = body.heads();
        if len > MAX_BODY_LEN {
            return Err(invalid(format!(
                "episode `{id}` has {len} bytes as one Example; the limit is {MAX_BODY_LEN}; \
                 pack its images as JPEG, or export to another format"
            )));
        }
        if self
            .open
            .as_ref()
            .is_some_and(|(_, bytes)| *bytes >= self.max_bytes)
        {
            self.close()?;
        }
        let path = numbered(&self.stem, self.lengths.len(), None);
        let (mut file, bytes) = match self.open.take() {
            Some(open) => open,
            None => (BufWriter::with_capacity(1 << 18, create_new(&path)?), 0),
        };
        if bytes == 0 {
            self.lengths.push(0);
        }
        let written = body.write(&heads, len, &mut file);
        written.writing(&self.stem)?;
        if let Some(last) = self.lengths.last_mut() {
            *last += 1;
        }
        self.bytes += len + 16;
        self.open = Some((file, bytes + len + 16));
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if let Some((mut file, _)) = self.open.take() {
            file.flush().writing(&self.stem)?;
        }
        Ok(())
    }

    /// Gives the files their names; returns their bytes, and how many episodes each has as TFDS writes it.
    pub(super) fn finish(mut self) -> Result<(u64, Vec<String>)> {
        self.close()?;
        let count = self.lengths.len();
        for idx in 0..count {
            let (from, to) = (
                numbered(&self.stem, idx, None),
                numbered(&self.stem, idx, Some(count)),
            );
            rename(&from, &to).writing(&to)?;
        }
        Ok((
            self.bytes,
            self.lengths.iter().map(ToString::to_string).collect(),
        ))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "both names are in the hidden folder of this export: no other program writes there"
)]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// The header of a length-delimited field.
fn head(tag: u8, len: u64) -> Vec<u8> {
    let mut head = vec![tag];
    varint(len, &mut head);
    head
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Packed values of a list: floats as float32, integers as varints.
fn packed(dtype: Dtype, block: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match dtype {
        Dtype::F32 | Dtype::F64 => out.extend(block),
        Dtype::F16 => {
            for &half in block.as_chunks().0 {
                out.extend(half::f16::from_le_bytes(half).to_f32().to_le_bytes());
            }
        }
        _ => {
            for bytes in block.chunks_exact(dtype.size()) {
                varint(integer(dtype, bytes).cast_unsigned(), &mut out);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rlds::example::{self, Example};
    use crate::rlds::tfrecord::{Found, Walk};
    use proptest::prelude::*;

    /// All Examples of a file, with their bytes.
    fn read(path: &Path) -> Vec<(Vec<u8>, Example)> {
        let (mut walk, mut found) = (Walk::open(path).unwrap(), Vec::new());
        loop {
            let mut body = Vec::new();
            match walk.next(&mut body).unwrap() {
                Found::Body(_) => {
                    let example = Example::parse(&body).unwrap();
                    found.push((body, example));
                }
                end => {
                    assert_eq!(end, Found::End);
                    return found;
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn lists_of_every_length_are_read_back(ints: Vec<i64>, floats: Vec<f32>, texts: Vec<String>) {
            let folder = tempfile::tempdir().unwrap();
            let mut body = Body::create(&folder.path().join("spool")).unwrap();
            body.clear().unwrap();
            body.ints("ints", ints.iter().copied()).unwrap();
            body.texts("texts", &texts.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
            body.floats("floats", floats.iter().copied()).unwrap();
            let stem = folder.path().join("x");
            let mut files = SplitFiles::new(stem.clone(), 1 << 30);
            files.add(&mut body, "one").unwrap();
            prop_assert_eq!(files.finish().unwrap().1, ["1"]);
            let found = read(&numbered(&stem, 0, Some(1)));
            let (bytes, example) = &found[0];
            let list = |name: &str| example.get(name).unwrap();
            prop_assert_eq!(list("ints"), &example::List::Ints(ints));
            let packed: Vec<_> = floats.iter().flat_map(|one| one.to_le_bytes()).collect();
            prop_assert_eq!(list("floats"), &example::List::Floats(packed));
            let example::List::Bytes(places) = list("texts") else {
                panic!("texts are byte strings");
            };
            let there = places.iter().map(|at| &bytes[at.start as usize..at.end as usize]);
            prop_assert!(there.eq(texts.iter().map(String::as_bytes)));
        }
    }

    #[test]
    fn a_full_file_is_followed_by_another_and_names_state_the_total() {
        let folder = tempfile::tempdir().unwrap();
        let mut body = Body::create(&folder.path().join("spool")).unwrap();
        let stem = folder.path().join("x-train.tfrecord");
        let mut files = SplitFiles::new(stem.clone(), 300);
        for episode in 0..5 {
            body.clear().unwrap();
            body.ints("steps/is_first", std::iter::repeat_n(episode, 100))
                .unwrap();
            files.add(&mut body, "one").unwrap();
        }
        let (bytes, lengths) = files.finish().unwrap();
        assert_eq!(lengths, ["3", "2"]);
        let files = [0, 1].map(|idx| numbered(&stem, idx, Some(2)));
        assert_eq!(files.iter().map(|path| read(path).len()).sum::<usize>(), 5);
        assert_eq!(
            files
                .iter()
                .map(|path| path.metadata().unwrap().len())
                .sum::<u64>(),
            bytes
        );
    }

    #[test]
    fn integers_of_every_type_are_widened() {
        for (dtype, block, expected) in [
            (
                Dtype::I8,
                vec![0xff],
                vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
            (Dtype::U8, vec![0xff], vec![0xff, 1]),
            (Dtype::U16, vec![0, 1], vec![0x80, 2]),
            (Dtype::I32, vec![5, 0, 0, 0], vec![5]),
            (Dtype::F16, vec![0, 0x3e], 1.5_f32.to_le_bytes().to_vec()),
        ] {
            assert_eq!(packed(dtype, &block), expected, "{}", dtype.name());
        }
    }
}
