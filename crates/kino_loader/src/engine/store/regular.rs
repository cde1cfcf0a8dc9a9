//! Where a frame is, in a stream whose pages have equally many frames: a division instead of a search.
//!
//! ```text
//! frames    | 3 4 5 | 6 7 8 | 9 10 |        frame 7: page (7 - 3) / 3 = 1, its frame (7 - 3) % 3 = 1
//! ```

use kino_dataset::PageSlice;

/// Pages of equally many frames, without gaps.
///
/// A division finds the page of a frame then. A search would read some pages, which are rarely in the CPU's caches: samples of
/// ten steps of two cameras spent an eighth of their collation on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Regular {
    /// The first frame, and the one after the last.
    first: u32,
    end: u32,
    frames_per_page: u32,
}

impl Regular {
    /// `None` if a frame is left out, or a page but the last has more or fewer than the others.
    pub(super) fn of(slices: &[PageSlice]) -> Option<Self> {
        let len = |slice: &PageSlice| u32::try_from(slice.range.len()).ok();
        let first = first_frame(slices.first()?);
        let frames_per_page = len(slices.first()?).filter(|&frames| frames > 0)?;
        let mut end = first;
        for (idx, slice) in slices.iter().enumerate() {
            let is_last = idx + 1 == slices.len();
            let frames = len(slice)?;
            let fits = frames == frames_per_page || is_last && frames < frames_per_page;
            if first_frame(slice) != end || !fits {
                return None;
            }
            end = end.checked_add(frames)?;
        }
        Some(Self {
            first,
            end,
            frames_per_page,
        })
    }

    /// The page of a frame, and the frame's position in it; `None` if it has none.
    pub(super) fn find(self, frame: u32) -> Option<(usize, usize)> {
        let at = frame.checked_sub(self.first)?;
        // Of one frame is the most frequent case, and the compiler knows no division by it.
        let (page, place) = match self.frames_per_page {
            1 => (at, 0),
            frames => (at / frames, at % frames),
        };
        (frame < self.end).then_some((page as usize, place as usize))
    }
}

/// The index of the first frame of a slice.
pub(super) fn first_frame(slice: &PageSlice) -> u32 {
    let skipped = u32::try_from(slice.range.start).unwrap_or(u32::MAX);
    slice.record.first_frame.saturating_add(skipped)
}
