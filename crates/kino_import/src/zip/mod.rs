//! Members of zip files, on disk or in memory: stores (`.zarr.zip`) and npz files. The `zip` crate reads them; here are
//! the limits.
//!
//! ```text
//! (local header | name | extra | body)*  (central header | name | extra | comment)*  [zip64 end | locator]  end
//!  └─ where the central header points      └─ sizes, checksum, method ─┘
//! ```
//!
//! Nothing is ever written under a member's name. A member is inflated to at most as many bytes as its header and its
//! caller allow. Of two members of one name the last one counts, as usual: stores replace keys that way.

mod forward;

use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ::zip::read::{ArchiveOffset, Config, ZipFile};
use ::zip::result::ZipError;
use ::zip::{CompressionMethod, ZipArchive};
use kino_sync::{Mutex, MutexGuard};

use crate::error::{ImportError, Result};
use crate::files;

pub(crate) use forward::Forward;

/// Deflate cannot expand its input by more than this factor.
const MAX_EXPANSION: u64 = 1032;

const ELSEWHERE: &str = "is not at the offset stated in the zip";
const WRONG_LENGTH: &str = "does not inflate to the length stated in the zip";
const WRONG_CHECKSUM: &str = "does not match its checksum in the zip";

/// Why something cannot be read.
#[derive(Debug)]
enum Fault {
    Io(io::Error),
    Damaged(String),
}

impl From<&str> for Fault {
    fn from(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }
}

impl From<io::Error> for Fault {
    /// The decoders report damage as invalid data or input, and truncation as the end of the file.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidData if error.to_string() == "Invalid checksum" => {
                WRONG_CHECKSUM.into()
            }
            ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
                WRONG_LENGTH.into()
            }
            _ => Self::Io(error),
        }
    }
}

impl Fault {
    /// An error of the crate: `what` if the file is damaged.
    fn new(error: ZipError, what: impl Into<String>) -> Self {
        match error {
            ZipError::Io(error) if error.kind() != ErrorKind::UnexpectedEof => Self::Io(error),
            _ => Self::Damaged(what.into()),
        }
    }

    fn at(self, path: &Path, member: &str) -> ImportError {
        match self {
            Self::Io(source) => files::cannot_read(path, source),
            Self::Damaged(what) => ImportError::corrupt(path, member, what),
        }
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Io(error) => format!("cannot be read: {error}"),
            Fault::Damaged(what) => what,
        }
    }
}

/// What the central directory says about a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    idx: usize,
    stored: u64,
    /// The uncompressed size.
    pub(crate) len: u64,
    crc: u32,
    is_deflated: bool,
}

impl Member {
    /// Whether any range of it can be read without what precedes it.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_deflated
    }
}

/// A zip file on disk.
#[derive(Debug)]
pub(crate) struct Zip {
    path: PathBuf,
    archive: Mutex<Archive<BufReader<File>>>,
    len: u64,
}

impl Zip {
    /// Reads the list of members.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = files::open(path).map_err(|error| files::cannot_read(path, error))?;
        let archive = Archive::open(BufReader::new(file));
        let archive = archive.map_err(|fault| fault.at(path, "/"))?;
        Ok(Self {
            path: path.to_owned(),
            len: archive.len,
            archive: Mutex::new(archive),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The names of the members, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.archive().names()
    }

    pub(crate) fn member(&self, name: &str) -> Result<Member> {
        let member = self.archive().member(name);
        member.ok_or_else(|| ImportError::corrupt(&self.path, name, "does not exist"))
    }

    /// Reads a member, which must not have more than `max_len` bytes; `None` if there is none of this name.
    pub(crate) fn read(&self, name: &str, max_len: u64) -> Result<Option<Vec<u8>>> {
        let mut archive = self.archive();
        let Some(member) = archive.member(name) else {
            return Ok(None);
        };
        let body = archive.read(&member, max_len);
        body.map(Some).map_err(|fault| fault.at(&self.path, name))
    }

    /// Reads the first bytes of a member, at most `len`.
    pub(crate) fn read_start(&self, name: &str, len: usize) -> Result<Vec<u8>> {
        let member = self.member(name)?;
        let start = self.archive().read_start(&member, len);
        start.map_err(|fault| fault.at(&self.path, name))
    }

    /// Reads a range of a member that [`is_plain`](Member::is_plain), without checking its checksum.
    pub(crate) fn read_range(&self, name: &str, start: u64, len: u64) -> Result<Vec<u8>> {
        let member = self.archive().member(name).filter(Member::is_plain);
        let range = match member {
            Some(member) if start.saturating_add(len) <= member.len => {
                self.archive().read_range(&member, start, len)
            }
            _ => Err("is truncated".into()),
        };
        range.map_err(|fault| fault.at(&self.path, name))
    }

    fn archive(&self) -> MutexGuard<'_, Archive<BufReader<File>>> {
        self.archive.lock()
    }
}

/// The names of the members of a zip file in memory, sorted.
pub(crate) fn names(file: &[u8]) -> Result<Vec<String>, String> {
    Ok(Archive::open(Cursor::new(file))?.names())
}

/// Reads a member of a zip file in memory, which must not have more than `max_len` bytes.
pub(crate) fn read(file: &[u8], name: &str, max_len: u64) -> Result<Vec<u8>, String> {
    let mut archive = Archive::open(Cursor::new(file))?;
    let member = archive.member(name).ok_or("does not exist")?;
    Ok(archive.read(&member, max_len)?)
}

/// A zip file, on disk or in memory.
#[derive(Debug)]
struct Archive<R> {
    zip: ZipArchive<R>,
    len: u64,
}

impl<R: Read + Seek> Archive<R> {
    fn open(mut file: R) -> Result<Self, Fault> {
        let len = file.seek(SeekFrom::End(0))?;
        // Offsets count from the first byte: the file is not searched for another start.
        let archive_offset = ArchiveOffset::Known(0);
        let zip = ZipArchive::with_config(Config { archive_offset }, file).map_err(|error| {
            let what = "has no valid central directory: the file is truncated or not a zip file";
            let what = format!("{what} ({error})");
            Fault::new(error, what)
        })?;
        for idx in 0..zip.len() {
            check(&zip, idx)?;
        }
        Ok(Self { zip, len })
    }

    fn names(&self) -> Vec<String> {
        let names = self.zip.file_names_raw();
        let mut names: Vec<_> = names
            .map(|name| String::from_utf8_lossy(name).into())
            .collect();
        names.sort_unstable();
        names
    }

    fn member(&self, name: &str) -> Option<Member> {
        let idx = self.zip.index_for_name_raw(name.as_bytes())?;
        let entry = self.zip.by_index_data(idx).ok()?;
        Some(Member {
            idx,
            stored: entry.compressed_size(),
            len: entry.size(),
            crc: entry.crc32(),
            is_deflated: entry.compression() != CompressionMethod::Stored,
        })
    }

    fn read(&mut self, member: &Member, max_len: u64) -> Result<Vec<u8>, Fault> {
        if member.len > max_len {
            let what = format!("has {} bytes, expected at most {max_len}", member.len);
            return Err(Fault::Damaged(what));
        }
        let mut body = self.body(member)?;
        // The length is the file's claim: no more is allocated than its bytes can become.
        let len = member.len.min(member.stored.saturating_mul(MAX_EXPANSION));
        let mut bytes = Vec::with_capacity(usize::try_from(len).map_err(io::Error::other)?);
        body.read_to_end(&mut bytes)?;
        if bytes.len() as u64 != member.len {
            return Err(WRONG_CHECKSUM.into());
        }
        Ok(bytes)
    }

    fn read_start(&mut self, member: &Member, len: usize) -> Result<Vec<u8>, Fault> {
        let mut start = Vec::new();
        let read = self.body(member)?.take(len as u64).read_to_end(&mut start);
        match read.map_err(Fault::from) {
            Err(Fault::Io(error)) => Err(Fault::Io(error)),
            // What precedes the damage may be all of the header.
            Err(Fault::Damaged(_)) | Ok(_) => Ok(start),
        }
    }

    fn read_range(&mut self, member: &Member, start: u64, len: u64) -> Result<Vec<u8>, Fault> {
        self.body(member)?;
        let body = self.zip.by_index_seek(member.idx);
        let mut body = body.map_err(|error| Fault::new(error, ELSEWHERE))?;
        body.seek(SeekFrom::Start(start))?;
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        body.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The bytes of a member, whose end is inside the file.
    fn body(&mut self, member: &Member) -> Result<ZipFile<'_, R>, Fault> {
        let body = self.zip.by_index(member.idx);
        let body = body.map_err(|error| Fault::new(error, ELSEWHERE))?;
        let start = body.data_start().unwrap_or(u64::MAX);
        if start.saturating_add(member.stored) > self.len {
            return Err(ELSEWHERE.into());
        }
        Ok(body)
    }
}

/// Refuses a member that no importer could read.
fn check<R: Read + Seek>(zip: &ZipArchive<R>, idx: usize) -> Result<(), Fault> {
    let damaged = |error: ZipError| Fault::Damaged(format!("has a damaged member ({error})"));
    let entry = zip.by_index_data(idx).map_err(damaged)?;
    let Ok(name) = std::str::from_utf8(entry.name_raw()) else {
        return Err("has a member whose name is not UTF-8 text".into());
    };
    let what = match entry.compression() {
        _ if entry.encrypted() => format!("has the encrypted member {name:?}"),
        CompressionMethod::Stored if entry.compressed_size() != entry.size() => {
            format!("has the member {name:?} with two different lengths")
        }
        CompressionMethod::Stored | CompressionMethod::Deflated => return Ok(()),
        method => format!(
            "has the member {name:?} with compression method {method}; only stored and deflated members are supported"
        ),
    };
    Err(Fault::Damaged(what))
}

/// Whether a name stays inside its folder.
pub(crate) fn is_inside(name: &str) -> bool {
    let mut parts = name.split(['/', '\\']);
    !name.starts_with(['/', '\\']) && !name.contains(':') && parts.all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn deflated(body: &[u8]) -> Vec<u8> {
        let mut deflated = Vec::new();
        flate2::read::DeflateEncoder::new(body, flate2::Compression::default())
            .read_to_end(&mut deflated)
            .unwrap();
        deflated
    }

    /// A file with one member of any claimed length.
    fn zip(body: &[u8], len: u32, method: u16) -> Vec<u8> {
        let packed = match method {
            8 => deflated(body),
            _ => body.to_vec(),
        };
        let packed_len = u32::try_from(packed.len()).unwrap().to_le_bytes();
        let (crc, len) = (crc32fast::hash(body).to_le_bytes(), len.to_le_bytes());
        let fields = [
            &[20, 0, 0, 0][..],
            &method.to_le_bytes(),
            &[0; 4],
            &crc,
            &packed_len,
            &len,
            &[1, 0, 0, 0],
        ]
        .concat();
        let local = [b"PK\x03\x04", &fields[..], b"a", &packed].concat();
        let entry = [&b"PK\x01\x02\x14\x00"[..], &fields, &[0; 14], b"a"].concat();
        let end = [
            &b"PK\x05\x06"[..],
            &[0; 4],
            &[1, 0, 1, 0],
            &u32::try_from(entry.len()).unwrap().to_le_bytes(),
            &u32::try_from(local.len()).unwrap().to_le_bytes(),
            &[0; 2],
        ]
        .concat();
        [local, entry, end].concat()
    }

    /// All members, from memory, and from a file, which must agree.
    fn unpack(file: &[u8]) -> Result<BTreeMap<String, Option<Vec<u8>>>, String> {
        let read = |name: String| (name.clone(), read(file, &name, 1 << 20).ok());
        Ok(names(file)?.into_iter().map(read).collect())
    }

    fn unpack_on_disk(file: &[u8]) -> Option<BTreeMap<String, Option<Vec<u8>>>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        std::fs::write(&path, file).unwrap();
        let zip = Zip::open(&path).ok()?;
        let read = |name: String| (name.clone(), zip.read(&name, 1 << 20).ok().flatten());
        Some(zip.names().into_iter().map(read).collect())
    }

    #[test]
    fn members_are_unpacked_and_checked() {
        for method in [0, 8] {
            let file = zip(&[7; 1000], 1000, method);
            let expected = BTreeMap::from([("a".to_owned(), Some(vec![7; 1000]))]);
            assert_eq!(unpack(&file).unwrap(), expected);
            assert_eq!(unpack_on_disk(&file).unwrap(), expected);
        }
    }

    #[test]
    fn a_member_that_inflates_beyond_its_stated_length_is_refused() {
        let file = zip(&vec![0; 10 << 20], 100, 8);
        assert!(file.len() < 20_000);
        let error = read(&file, "a", 1 << 20).unwrap_err();
        assert_eq!(error, WRONG_LENGTH);
    }

    #[test]
    fn a_member_larger_than_its_reader_expects_is_refused() {
        let file = zip(&[7; 1000], 1000, 8);
        let error = read(&file, "a", 999).unwrap_err();
        assert_eq!(error, "has 1000 bytes, expected at most 999");
    }

    #[test]
    fn damage_never_panics() {
        let file = zip(&[7; 40], 40, 8);
        for len in 0..file.len() {
            assert!(names(&file[..len]).is_err(), "{len}");
        }
        for bit in 0..file.len() * 8 {
            let mut file = file.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unpack(&file).ok(), unpack_on_disk(&file), "bit {bit}");
        }
    }

    #[test]
    fn a_directory_with_a_wrong_member_count_is_damaged() {
        let mut file = zip(&[7; 40], 40, 0);
        let count = file.len() - 12;
        file[count] = 2;
        let error = names(&file).unwrap_err();
        assert!(error.contains("has no valid central directory"), "{error}");
    }

    /// The file of [`zip`] with the sizes and the offset of its member, and the end of its list, as zip64 stores them.
    #[test]
    fn long_sizes_are_read_from_the_extra_field() {
        let file = zip(&[7; 1000], 1000, 8);
        let stored = deflated(&[7; 1000]).len();
        let local = &file[..31 + stored];
        let mut entry = file[local.len()..local.len() + 47].to_vec();
        entry[20..28].fill(0xff);
        entry[30..32].copy_from_slice(&28u16.to_le_bytes());
        entry[42..46].fill(0xff);
        let extra = [1000, stored as u64, 0].map(u64::to_le_bytes).concat();
        entry.extend([&[1, 0, 24, 0], &*extra].concat());
        let at = (local.len() + entry.len()) as u64;
        let mut end = [&b"PK\x06\x06"[..], &44u64.to_le_bytes(), &[45, 0, 45, 0]].concat();
        end.extend([0; 8]);
        for number in [1, 1, entry.len() as u64, local.len() as u64] {
            end.extend(number.to_le_bytes());
        }
        end.extend([&b"PK\x06\x07\0\0\0\0"[..], &at.to_le_bytes(), &[1, 0, 0, 0]].concat());
        end.extend([&b"PK\x05\x06\0\0\0\0"[..], &[0xff; 12], &[0; 2]].concat());
        let file = [local, &entry, &end].concat();
        assert_eq!(read(&file, "a", 1000).unwrap(), [7; 1000]);
        for bit in 0..file.len() * 8 {
            let mut file = file.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unpack(&file).ok(), unpack_on_disk(&file), "bit {bit}");
        }
    }
}
