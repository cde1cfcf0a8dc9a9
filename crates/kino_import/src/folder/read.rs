//! Reading a field: whole, by rows or by images.

use std::ops::Range;
use std::path::Path;

use kino_sync::Mutex;

use crate::error::{ImportError, Result, invalid};
use crate::files;
use crate::folder::fields::{Place, Reading};
use crate::npy::{self, Header};
use crate::zip::{Forward, Zip};
use crate::{image, png};

/// At most this much is read in one call.
const MAX_READ_BYTES: u64 = 1 << 30;

/// Limit on an array that must be read whole.
const MAX_WHOLE_BYTES: u64 = 128 << 20;

/// Larger image files are refused.
const MAX_IMAGE_BYTES: u64 = 256 << 20;

impl Place {
    /// The file or folder that it is in.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Array { path, .. } => path,
            Self::Columns { table, .. } => table.path(),
            Self::Images { folder, .. } => folder,
        }
    }

    /// How its rows are read.
    pub(crate) fn reading(&self) -> Reading {
        match self {
            Self::Array { reading, .. } => *reading,
            Self::Columns { .. } | Self::Images { .. } => Reading::Rows,
        }
    }

    /// The member that is read forwards.
    pub(crate) fn forward(&self) -> Result<Forward> {
        match self {
            Self::Array {
                path,
                member: Some(member),
                ..
            } => Forward::open(path, member),
            _ => Err(invalid("only members of a zip file are read sequentially")),
        }
    }

    /// All values, or all padded strings, of an array, little-endian and in C order.
    pub(crate) fn read_whole(&self) -> Result<Vec<u8>> {
        match self {
            Self::Columns { .. } | Self::Images { .. } => Ok(Vec::new()),
            Self::Array {
                path,
                member,
                header,
                ..
            } => {
                let wrong = |what: String| {
                    ImportError::corrupt(path, member.as_deref().unwrap_or("/"), what)
                };
                let len = header.values_bytes().unwrap_or(u64::MAX);
                if len > MAX_WHOLE_BYTES {
                    let next = "write it in C order: `np.ascontiguousarray` before `np.save`";
                    let what = format!("is an array of {len} bytes that can only be read whole");
                    return Err(ImportError::unsupported(
                        path,
                        member.as_deref().unwrap_or("/"),
                        &what,
                        next,
                    ));
                }
                let start = header.start;
                let mut values = match member {
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
                    return Err(wrong("is truncated".to_owned()));
                }
                if header.is_fortran && header.shape.len() > 1 {
                    values = npy::from_fortran(&values, &header.shape, header.element.size());
                }
                if header.element.dtype().is_some() {
                    header.element.to_little(&mut values).map_err(wrong)?;
                }
                Ok(values)
            }
        }
    }

    /// Rows of an array that need not be read whole.
    pub(crate) fn read_rows(
        &self,
        rows: Range<u64>,
        row_bytes: u64,
        forward: Option<&Mutex<Forward>>,
    ) -> Result<Vec<u8>> {
        let Self::Array {
            path,
            member,
            header,
            ..
        } = self
        else {
            return Ok(Vec::new());
        };
        let start = header.start as u64 + rows.start * row_bytes;
        let len = (rows.end - rows.start).saturating_mul(row_bytes);
        if len > MAX_READ_BYTES {
            return Err(invalid(
                "more than a gibibyte was requested; read fewer frames at a time",
            ));
        }
        let mut values = match (member, forward) {
            (None, _) => read_range(path, start, len, Ending::IsFar)?,
            (Some(_), Some(forward)) => {
                let mut forward = forward.lock();
                forward.read(start, len)?
            }
            (Some(member), None) => Zip::open(path)?.read_range(member, start, len)?,
        };
        if header.element.dtype().is_some() {
            let wrong =
                |what: String| ImportError::corrupt(path, member.as_deref().unwrap_or("/"), what);
            header.element.to_little(&mut values).map_err(wrong)?;
        }
        Ok(values)
    }

    /// Images: JPEG files unchanged, or the pixels of PNG files.
    pub(crate) fn read_images(&self, frames: Range<u64>) -> Result<Vec<Vec<u8>>> {
        let Self::Images {
            folder,
            files,
            encoded,
        } = self
        else {
            return Ok(Vec::new());
        };
        let as_idx = |frame: u64| usize::try_from(frame).unwrap_or(usize::MAX);
        let files = files
            .get(as_idx(frames.start)..as_idx(frames.end))
            .unwrap_or_default();
        let image = |name: &String| {
            let file = read_image(folder, name)?;
            let wrong = |what: String| ImportError::corrupt(folder, name, what);
            if image::look(&file).map_err(wrong)? != *encoded {
                let what = "is an image whose size differs from the first";
                return Err(wrong(what.to_owned()));
            }
            if encoded.carried {
                return Ok(file);
            }
            png::decode(&file).map(|(_, pixels)| pixels).map_err(wrong)
        };
        files.iter().map(image).collect()
    }
}

/// Reads one file of a folder of images.
pub(crate) fn read_image(folder: &Path, name: &str) -> Result<Vec<u8>> {
    let path = folder.join(name);
    files::read_limited(&path, MAX_IMAGE_BYTES)
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
