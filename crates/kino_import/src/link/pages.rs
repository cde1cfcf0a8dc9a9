//! The pages of a linked stream, and their bytes.
//!
//! Bytes are read from the very ranges that a dataset will refer to, not through the format's library: what is checked
//! is what will be read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use kino_codec::JPEG_FILES;
use kino_dataset::{LinkedFile, LinkedPiece, NewPage, Pages};

use crate::error::{ImportError, Result};
use crate::files::{self, ReadingPath};
use crate::jpeg;
use crate::link::{Extent, LinkFiles, PageExtent, cannot_link};
use crate::source::{EpisodeSpec, Wanted};

/// The largest page, as in a shard.
const MAX_PAGE_BYTES: u64 = 1 << 30;

/// Pages of about this many bytes, read or decoded, are passed on together.
const BLOCK_BYTES: u64 = 8 << 20;

/// At most this many pages are passed on together.
const BLOCK_PAGES: usize = 4096;

/// The pages of one stream of an episode.
pub(crate) struct LinkedStream<'a> {
    files: &'a LinkFiles<'a>,
    /// JPEG files may be followed by zeros, which are left out.
    is_padded: bool,
    frame_bytes: u64,
    pages: std::vec::IntoIter<PageExtent>,
    /// The file that was read last.
    open: Option<(Arc<Path>, Arc<LinkedFile>, File)>,
}

impl<'a> LinkedStream<'a> {
    /// Finds the pages of a stream that is linked.
    pub(crate) fn open(
        files: &'a LinkFiles<'a>,
        episode: &EpisodeSpec,
        stream: usize,
    ) -> Result<Self> {
        let stream = &episode.streams[stream];
        let pages = stream.reader.link(Wanted {
            episode,
            stream,
            frames: 0..stream.frames,
        })?;
        let found: u64 = pages.iter().map(|page| u64::from(page.frames)).sum();
        if found != stream.frames {
            let what = format!("{found} of {} frames are in pages", stream.frames);
            return Err(cannot_link(Path::new(&episode.object), &stream.name, &what));
        }
        Ok(Self {
            files,
            is_padded: stream.link.as_deref() == Some(JPEG_FILES),
            frame_bytes: stream.frame_bytes(),
            pages: pages.into_iter(),
            open: None,
        })
    }

    /// The next pages, and the bytes that they take in memory; `None` at the end.
    pub(crate) fn next_block(&mut self) -> Result<Option<(Pages, usize)>> {
        let (mut pages, mut bytes, mut decoded) = (Vec::new(), 0_u64, 0_u64);
        while pages.len() < BLOCK_PAGES && bytes < BLOCK_BYTES && decoded < BLOCK_BYTES {
            let Some(extent) = self.pages.next() else {
                break;
            };
            let page = self.page(&extent)?;
            let len = page.bytes.as_ref().map(|bytes| bytes.len() as u64);
            bytes += len.unwrap_or(0);
            decoded += len.map_or(0, |_| u64::from(page.frames) * self.frame_bytes);
            pages.push(page);
        }
        let held = usize::try_from(bytes).unwrap_or(usize::MAX);
        let block = Pages {
            pages,
            ..Pages::default()
        };
        Ok((!block.pages.is_empty()).then_some((block, held)))
    }

    fn page(&mut self, extent: &PageExtent) -> Result<NewPage> {
        let mut pieces = Vec::with_capacity(extent.pieces.len());
        for piece in &extent.pieces {
            pieces.push(self.piece(piece)?);
        }
        let bytes = if self.files.are_trusted() {
            None
        } else {
            Some(self.read(extent, &mut pieces)?)
        };
        Ok(NewPage {
            frames: extent.frames,
            bytes,
            pieces,
        })
    }

    fn piece(&mut self, piece: &Extent) -> Result<LinkedPiece> {
        Ok(match piece {
            Extent::Stored(bytes) => LinkedPiece::Stored(bytes.clone()),
            Extent::File { path, offset, len } => {
                let file = self.file(path)?;
                let end = offset.checked_add(*len);
                let fits = end.is_some_and(|end| end <= file.file.bytes) && *len <= MAX_PAGE_BYTES;
                let len = u32::try_from(*len).ok().filter(|_| fits);
                let len = len.ok_or_else(|| {
                    let what = format!("has fewer bytes than its own tables say ({offset} + …)");
                    ImportError::corrupt(path, "", what)
                })?;
                let offset = *offset;
                LinkedPiece::File { file, offset, len }
            }
        })
    }

    /// What the dataset says about a file; the last one is remembered, because most pages are in the same.
    fn file(&mut self, path: &Arc<Path>) -> Result<Arc<LinkedFile>> {
        if let Some((known, file, _)) = &self.open
            && known == path
        {
            return Ok(Arc::clone(file));
        }
        let file = self.files.get(path)?;
        let open = files::open(path).reading(path)?;
        self.open = Some((Arc::clone(path), Arc::clone(&file), open));
        Ok(file)
    }

    /// The bytes of a page. Padding after a JPEG file is left out, here and in its pieces.
    fn read(&mut self, extent: &PageExtent, pieces: &mut [LinkedPiece]) -> Result<Vec<u8>> {
        let mut page = Vec::new();
        for piece in &extent.pieces {
            match piece {
                Extent::Stored(bytes) => page.extend_from_slice(bytes),
                Extent::File { path, offset, len } => {
                    self.file(path)?;
                    let start = page.len();
                    // The length was compared with the file's.
                    page.resize(start + usize::try_from(*len).unwrap_or(0), 0);
                    if let Some((.., file)) = &self.open {
                        file.read_exact_at(&mut page[start..], *offset)
                            .reading(path)?;
                    }
                }
            }
        }
        if let Some(LinkedPiece::File { len, .. }) = pieces.last_mut()
            && self.is_padded
            && let Some(file) = jpeg::without_padding(&page)
        {
            let padding = u32::try_from(page.len() - file.len()).unwrap_or(0);
            let kept = file.len();
            if padding < *len {
                *len -= padding;
                page.truncate(kept);
            }
        }
        Ok(page)
    }
}
