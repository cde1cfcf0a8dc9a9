//! Boxes and their fields, over bytes that were read.
//!
//! ```text
//! | u32 size | kind | body …                    size counts from its own first byte
//! | u32 1    | kind | u64 size | body …
//! | u32 0    | kind | body … up to the end of what contains it
//! ```

use std::path::Path;

use crate::error::ImportError;

/// The name of a box.
pub(super) type Kind = [u8; 4];

/// Why a file is refused, before the file's path is known.
#[derive(Debug)]
pub(super) enum Fault {
    /// The file is damaged, or its tables contradict each other.
    Corrupt { object: &'static str, what: String },
    /// The file is valid but cannot be imported.
    Unsupported {
        object: &'static str,
        what: String,
        next: &'static str,
    },
    /// The file cannot be read.
    Io(std::io::Error),
}

pub(super) fn corrupt(object: &'static str, what: impl Into<String>) -> Fault {
    let what = what.into();
    Fault::Corrupt { object, what }
}

pub(super) fn unsupported(object: &'static str, what: &str, next: &'static str) -> Fault {
    Fault::Unsupported {
        object,
        what: what.to_owned(),
        next,
    }
}

impl Fault {
    pub(super) fn of(self, path: &Path) -> ImportError {
        match self {
            Self::Corrupt { object, what } => ImportError::corrupt(path, object, what),
            Self::Unsupported { object, what, next } => {
                ImportError::unsupported(path, object, &what, next)
            }
            Self::Io(error) => crate::files::cannot_read(path, error),
        }
    }
}

/// A box in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundBox<'a> {
    pub(super) kind: Kind,
    pub(super) body: &'a [u8],
}

/// The boxes in a body; `object` names it in errors.
pub(super) fn children<'a>(
    body: &'a [u8],
    object: &'static str,
) -> impl Iterator<Item = Result<FoundBox<'a>, Fault>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        // QuickTime may end a list of boxes with four zeros.
        if rest.len() < 8 {
            return None;
        }
        let found = take_box(&mut rest, object);
        if found.is_err() {
            rest = &[];
        }
        Some(found)
    })
}

fn take_box<'a>(rest: &mut &'a [u8], object: &'static str) -> Result<FoundBox<'a>, Fault> {
    let mut fields = Fields::new(rest, object);
    let (size, kind) = (fields.u32()?, fields.kind()?);
    let size = match size {
        0 => rest.len() as u64,
        1 => fields.u64()?,
        size => u64::from(size),
    };
    let header = rest.len() - fields.rest.len();
    let end = usize::try_from(size).ok();
    let inside = end.and_then(|end| rest.split_at_checked(end));
    let Some((whole, after)) = inside.filter(|(whole, _)| whole.len() >= header) else {
        let what = format!(
            "has a box {} of {size} bytes in {} bytes",
            name(kind),
            rest.len()
        );
        return Err(corrupt(object, what));
    };
    *rest = after;
    let body = whole.get(header..).unwrap_or_default();
    Ok(FoundBox { kind, body })
}

/// A kind as text.
pub(super) fn name(kind: Kind) -> String {
    kind.escape_ascii().to_string()
}

/// The box of a kind, if there is one; two are refused.
pub(super) fn find<'a>(
    body: &'a [u8],
    kind: &Kind,
    object: &'static str,
) -> Result<Option<&'a [u8]>, Fault> {
    let mut found = None;
    for child in children(body, object) {
        let child = child?;
        if child.kind == *kind && found.replace(child.body).is_some() {
            let what = format!("has two boxes {}", name(*kind));
            return Err(corrupt(object, what));
        }
    }
    Ok(found)
}

/// The box of a kind, which must be there.
pub(super) fn need<'a>(
    body: &'a [u8],
    kind: &Kind,
    object: &'static str,
) -> Result<&'a [u8], Fault> {
    let missing = || corrupt(object, format!("has no box {}", name(*kind)));
    find(body, kind, object)?.ok_or_else(missing)
}

/// Big-endian fields, one after another.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    object: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8], object: &'static str) -> Self {
        Self {
            rest: bytes,
            object,
        }
    }

    /// The fields of a full box, with its version and flags.
    pub(super) fn full(bytes: &'a [u8], object: &'static str) -> Result<(Self, u8, u32), Fault> {
        let mut fields = Self::new(bytes, object);
        let start = fields.u32()?;
        let [version, ..] = start.to_be_bytes();
        Ok((fields, version, start & 0x00ff_ffff))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let short = || corrupt(self.object, "is too short");
        let (first, rest) = self.rest.split_first_chunk().ok_or_else(short)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let short = || corrupt(self.object, "is too short");
        let (first, rest) = self.rest.split_at_checked(len).ok_or_else(short)?;
        self.rest = rest;
        Ok(first)
    }

    pub(super) fn skip(&mut self, len: usize) -> Result<(), Fault> {
        self.take(len).map(drop)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn kind(&mut self) -> Result<Kind, Fault> {
        self.array()
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Fault> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Fault> {
        self.array().map(i64::from_be_bytes)
    }

    /// The rows of a table: a count, then as many rows of `N` bytes. A count that the bytes do not back is refused.
    pub(super) fn rows<const N: usize>(&mut self) -> Result<&'a [[u8; N]], Fault> {
        let count = self.u32()?;
        let (rows, _) = self.rest.as_chunks::<N>();
        let wanted = usize::try_from(count).ok();
        wanted.and_then(|count| rows.get(..count)).ok_or_else(|| {
            let what = format!("claims {count} entries, and has {}", rows.len());
            corrupt(self.object, what)
        })
    }
}

/// A row of two numbers.
pub(super) fn pair(row: [u8; 8]) -> (u32, u32) {
    let [a, b, c, d, rest @ ..] = row;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(rest))
}
