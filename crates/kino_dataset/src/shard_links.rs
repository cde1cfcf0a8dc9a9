//! Linked pages of a shard while it is being written: they follow all pages of an episode that are stored.

use kino_format::{NONE, PieceBytes};

use crate::error::{Result, format_at};
use crate::links::LinkedFile;
use crate::pages::LinkedPiece;
use crate::shard_file::{RunPages, ShardFile};

impl ShardFile {
    /// Adds the linked pages of a stream, after all pages that are stored.
    pub(crate) fn link(&mut self, pages: &mut RunPages) -> Result<()> {
        let mut first_frame = pages.first_frame.unwrap_or(0);
        for page in std::mem::take(&mut pages.linked) {
            let mut pieces = Vec::with_capacity(page.pieces.len());
            for piece in &page.pieces {
                pieces.push(match piece {
                    LinkedPiece::Stored(bytes) => PieceBytes::Stored(bytes),
                    LinkedPiece::File { file, offset, len } => PieceBytes::File {
                        file: self.file_position(file),
                        offset: *offset,
                        len: *len,
                    },
                });
            }
            let linked = kino_format::LinkedPage {
                pieces: &pieces,
                first_frame,
                crc: page.crc,
            };
            let added = self.writer.linked_page(&linked, &mut self.buffer);
            let number = added.map_err(format_at("new shard"))?;
            if pages.page_count == 0 {
                pages.first_page = number;
            }
            pages.page_count += 1;
            first_frame = first_frame.saturating_add(page.frames);
        }
        Ok(())
    }

    /// The position of a linked file in the shard's schema; a new one is added.
    fn file_position(&mut self, file: &LinkedFile) -> u32 {
        // Pages of one file follow each other, so the search is short.
        let known = self
            .schema
            .files
            .iter()
            .rposition(|known| *known == file.file);
        let position = known.unwrap_or_else(|| {
            self.schema.files.push(file.file.clone());
            self.contents.files.push(file.clone());
            self.schema.files.len() - 1
        });
        u32::try_from(position).unwrap_or(NONE)
    }
}
