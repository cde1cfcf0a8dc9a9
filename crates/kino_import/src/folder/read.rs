//! Reading arrays, whole or by rows, and images.

use std::ops::Range;
use std::path::Path;

use kino_sync::Mutex;

use crate::error::{ImportError, Result, invalid};
use crate::files;
use crate::folder::fields::{Images, StoredArray};
use crate::npy::Header;
use crate::source::FrameBuf;
use crate::specs::places;
use crate::zip::{Forward, Zip};
use crate::{image, png};

/// At most this much is read in one call.
const MAX_READ_BYTES: u64 = 1 << 30;

/// Limit on an array that must be read whole.
const MAX_WHOLE_BYTES: u64 = 128 << 20;

/// Larger image files are refused.
const MAX_IMAGE_BYTES: u64 = 256 << 20;

impl StoredArray {
    fn object(&self) -> &str {
        self.member.as_deref().unwrap_or("/")
    }

    fn arranged(&self, values: Vec<u8>) -> Result<Vec<u8>> {
        let wrong = |what| ImportError::corrupt(&self.path, self.object(), what);
        self.header.arrange(values).map_err(wrong)
    }

    /// The member that is read forwards.
    pub(crate) fn forward(&self) -> Result<Forward> {
        match &self.member {
            Some(member) => Forward::open(&self.path, member),
            None => Err(invalid("only members of a zip file are read sequentially")),
        }
    }

    /// All values, or all padded strings, little-endian and in C order.
    pub(crate) fn read_whole(&self) -> Result<Vec<u8>> {
        let Self { path, header, .. } = self;
        let len = header.values_bytes().unwrap_or(u64::MAX);
        if len > MAX_WHOLE_BYTES {
            let what = format!("is an array of {len} bytes that can only be read whole");
            let next = "write it in C order: `np.ascontiguousarray` before `np.save`";
            return Err(ImportError::unsupported(path, self.object(), &what, next));
        }
        let start = header.start;
        let mut values = match &self.member {
            None => read_range(path, start as u64, len, Ending::IsFar)?,
            Some(member) => {
                let most = len.saturating_add(Header::ENOUGH_BYTES as u64);
                let mut file = Zip::open(path)?.read(member, most)?.unwrap_or_default();
                file.drain(..start.min(file.len()));
                file
            }
        };
        values.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        if values.len() as u64 != len {
            return Err(ImportError::corrupt(path, self.object(), "is truncated"));
        }
        self.arranged(values)
    }

    /// Rows of an array that need not be read whole.
    pub(crate) fn read_rows(
        &self,
        rows: Range<u64>,
        row_bytes: u64,
        forward: Option<&Mutex<Forward>>,
    ) -> Result<Vec<u8>> {
        let start = self.header.start as u64 + rows.start * row_bytes;
        let len = (rows.end - rows.start).saturating_mul(row_bytes);
        if len > MAX_READ_BYTES {
            let what = "more than a gibibyte was requested; read fewer frames at a time";
            return Err(invalid(what));
        }
        self.arranged(match (&self.member, forward) {
            (None, _) => read_range(&self.path, start, len, Ending::IsFar)?,
            (Some(_), Some(forward)) => forward.lock().read(start, len)?,
            (Some(member), None) => Zip::open(&self.path)?.read_range(member, start, len)?,
        })
    }
}

impl Images {
    /// JPEG files unchanged, or the pixels of PNG files.
    pub(crate) fn read(&self, frames: &Range<u64>) -> Result<FrameBuf> {
        let names = self.files.get(places(frames)).unwrap_or_default();
        let images = names.iter().map(|name| self.read_one(name));
        let images = images.collect::<Result<Vec<_>>>()?;
        Ok(if self.encoded.carried {
            FrameBuf::Bytes(images)
        } else {
            FrameBuf::Values(images.concat())
        })
    }

    fn read_one(&self, name: &str) -> Result<Vec<u8>> {
        let file = read_image(&self.folder, name)?;
        let wrong = |what: String| ImportError::corrupt(&self.folder, name, what);
        if image::look(&file).map_err(wrong)? != self.encoded {
            let what = "is an image whose size differs from the first";
            return Err(wrong(what.to_owned()));
        }
        if self.encoded.carried {
            return Ok(file);
        }
        png::decode(&file).map(|(_, pixels)| pixels).map_err(wrong)
    }
}

/// Reads one file of a folder of images.
pub(crate) fn read_image(folder: &Path, name: &str) -> Result<Vec<u8>> {
    files::read_limited(&folder.join(name), MAX_IMAGE_BYTES)
}

/// What to do if a file ends before a range does.
#[derive(PartialEq, Eq)]
pub(crate) enum Ending {
    /// Return fewer bytes.
    MayBeNear,
    /// Fail.
    IsFar,
}

/// Reads a range of a file.
pub(crate) fn read_range(path: &Path, start: u64, len: u64, ending: Ending) -> Result<Vec<u8>> {
    let bytes = files::read_range(path, start, len);
    let bytes = bytes.map_err(|source| files::cannot_read(path, source))?;
    if ending == Ending::IsFar && (bytes.len() as u64) < len {
        return Err(ImportError::corrupt(path, "/", "is truncated"));
    }
    Ok(bytes)
}
