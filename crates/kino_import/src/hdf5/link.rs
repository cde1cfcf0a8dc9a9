//! Where the rows of a dataset are in the file, for streams that are linked instead of packed.
//!
//! ```text
//! contiguous   | row 0 | row 1 | …                            address + row × bytes of a row
//! chunked      | rows 0..k | … | rows k..2k | …               only if a chunk holds whole rows and no filter is used
//! variable     reference ─▶ | … | one file | …                a heap, see `heap`
//! ```

use std::path::Path;
use std::sync::Arc;

use hdf5_pure::Layout;
use kino_codec::FrameType;

use crate::error::Result;
use crate::hdf5::element::Element;
use crate::hdf5::frames::read_places;
use crate::hdf5::rows::{Form, Rows};
use crate::link::{Extent, PageExtent, cannot_link};
use crate::source::{StreamSpec, Wanted};

/// The codec of rows that are values.
const VALUES: &str = "raw";

/// The codec of rows that are JPEG files.
const FILES: &str = "jpeg:carry";

/// Where rows are: the address of the first row of every chunk, and how many rows a chunk has.
struct RowPlaces {
    starts: Vec<Option<u64>>,
    rows: u64,
    row_bytes: u64,
}

impl RowPlaces {
    /// The address of a row; `None` if it was never written.
    fn address(&self, row: u64) -> Option<u64> {
        let chunk = usize::try_from(row / self.rows).ok()?;
        let start = self.starts.get(chunk).copied().flatten()?;
        start.checked_add((row % self.rows).checked_mul(self.row_bytes)?)
    }
}

impl Rows {
    /// The codec whose pages the rows are, or why they are not.
    pub(crate) fn codec_of_pages(&self) -> Result<String, String> {
        let codec = match (&self.form, &self.leaf.element) {
            (Form::Files(encoded), _) if encoded.carried => FILES,
            (Form::Files(_), _) => return Err("is stored as PNG files".to_owned()),
            (Form::ChannelsFirst(_), _) => return Err("is stored as CHW images".to_owned()),
            (Form::Stored, Element::Number { dtype, is_big, .. }) => {
                if *is_big && dtype.size() > 1 {
                    return Err("is stored in big-endian order".to_owned());
                }
                VALUES
            }
            (Form::Stored, _) => return Err("is not stored as values".to_owned()),
        };
        if self.leaf.element == Element::Bytes {
            return Ok(codec.to_owned());
        }
        self.check_layout().map(|()| codec.to_owned())
    }

    /// Says why rows are not runs of bytes.
    fn check_layout(&self) -> Result<(), String> {
        let opened = self.file.dataset(&self.leaf);
        let dataset = opened.map_err(|error| error.to_string())?;
        match dataset.layout().map_err(|error| error.to_string())? {
            Layout::Contiguous {
                address: Some(_), ..
            } => Ok(()),
            Layout::Contiguous { .. } => Err("was never written".to_owned()),
            Layout::Chunked { chunk_shape, .. } => {
                if !dataset.filters().is_empty() {
                    return Err("is compressed".to_owned());
                }
                let sides = self.leaf.shape.iter().zip(&chunk_shape).skip(1);
                let is_split = chunk_shape.len() != self.leaf.shape.len()
                    || sides.into_iter().any(|(side, chunk)| side != chunk)
                    || chunk_shape.first() == Some(&0);
                if is_split {
                    return Err(format!(
                        "is stored in chunks of {chunk_shape:?}, which cut frames into parts"
                    ));
                }
                let chunks = dataset.chunks();
                chunks.map(|_| ()).map_err(|error| error.to_string())
            }
            Layout::Compact { .. } => Err("is stored inside a header".to_owned()),
            _ => Err("is a view of other datasets".to_owned()),
        }
    }

    /// The pages of frames of a stream.
    pub(crate) fn page_extents(&self, wanted: &Wanted<'_>) -> Result<Vec<PageExtent>> {
        let frames = self.first + wanted.frames.start..self.first + wanted.frames.end;
        let part = self.file.part(self.leaf.place.part);
        let path: Arc<Path> = Arc::from(if self.leaf.place.part == 0 {
            self.file.path()
        } else {
            part.path.as_path()
        });
        let base = part.raw.base();
        let mut pages = Pages::new(path, base, wanted.stream);
        if self.leaf.element == Element::Bytes {
            for (address, len) in read_places(&self.file, &self.leaf, frames)? {
                pages.add(address, len);
            }
            return Ok(pages.pages);
        }
        let places = self.row_places()?;
        let (skip, len) = self.entry();
        for row in frames {
            let address = places.address(row).and_then(|at| at.checked_add(skip));
            let address = address.ok_or_else(|| {
                let why = format!("row {row} was never written");
                cannot_link(self.file.path(), &self.leaf.path, &why)
            })?;
            pages.add(address, len);
        }
        Ok(pages.pages)
    }

    fn row_places(&self) -> Result<RowPlaces> {
        let dataset = self.file.dataset(&self.leaf)?;
        let wrong = |error| self.file.wrong(&self.leaf.path, error);
        let row_bytes = self.leaf.row_bytes();
        let rows = self.leaf.shape.first().copied().unwrap_or(0);
        let Layout::Chunked { chunk_shape, .. } = dataset.layout().map_err(wrong)? else {
            let start = match dataset.layout().map_err(wrong)? {
                Layout::Contiguous { address, .. } => address,
                _ => None,
            };
            return Ok(RowPlaces {
                starts: vec![start],
                rows: rows.max(1),
                row_bytes,
            });
        };
        let per_chunk = chunk_shape.first().copied().unwrap_or(1).max(1);
        let count = usize::try_from(rows.div_ceil(per_chunk)).unwrap_or(0);
        let chunks = dataset.chunks().map_err(wrong)?;
        // The list of chunks was read: there are no more rows with an address than it has entries.
        let mut starts = vec![None; count.min(chunks.len())];
        for chunk in chunks {
            let number = chunk.offset.first().copied().unwrap_or(0) / per_chunk;
            let is_whole = per_chunk.checked_mul(row_bytes) == Some(chunk.storage_size);
            let number = usize::try_from(number).ok().filter(|_| is_whole);
            if let Some(start) = number.and_then(|number| starts.get_mut(number)) {
                *start = Some(chunk.address);
            }
        }
        Ok(RowPlaces {
            starts,
            rows: per_chunk,
            row_bytes,
        })
    }
}

/// Collects frames into pages.
struct Pages {
    path: Arc<Path>,
    base: u64,
    /// Frames per page.
    most: u32,
    pages: Vec<PageExtent>,
}

impl Pages {
    fn new(path: Arc<Path>, base: u64, stream: &StreamSpec) -> Self {
        Self {
            path,
            base,
            most: page_frames(stream),
            pages: Vec::new(),
        }
    }

    /// Adds a frame, to the last page if it follows it in the file.
    fn add(&mut self, address: u64, bytes: u64) {
        let start = self.base.saturating_add(address);
        if let Some(PageExtent { frames, pieces }) = self.pages.last_mut()
            && let [Extent::File { offset, len, .. }] = pieces.as_mut_slice()
            && *frames < self.most
            && offset.checked_add(*len) == Some(start)
        {
            *frames += 1;
            *len += bytes;
            return;
        }
        self.pages.push(PageExtent {
            frames: 1,
            pieces: vec![Extent::File {
                path: Arc::clone(&self.path),
                offset: start,
                len: bytes,
            }],
        });
    }
}

/// How many frames a page may hold: one file, or as many values as a page of `raw` has.
fn page_frames(stream: &StreamSpec) -> u32 {
    let is_values = stream.link.as_deref() == Some(VALUES);
    let codec = kino_codec::codec(VALUES).ok().filter(|_| is_values);
    let frame: &FrameType = &stream.frame;
    let frames = codec.map_or(1, |codec| codec.page_frames(frame).get());
    u32::try_from(frames).unwrap_or(1)
}
