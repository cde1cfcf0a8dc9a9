//! Frames to pages, against a twin that records the location of every frame.

use kino_codec::Dtype;
use kino_format::{
    EpisodeRecords, Kind, MAX_PAGE_FRAMES, Result, Schema, ShardWriter, StreamRecord,
};
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use proptest::sample::Index;

use crate::fixture::{CLOCK, STREAM, index, open, regular, values};

/// Two streams: one with pages of the given lengths, and one that starts with frames of it.
struct Layout {
    base_pages: Vec<u32>,
    base_first: u32,
    own_start: u32,
    own_pages: Vec<u32>,
}

impl Layout {
    fn base_frames(&self) -> u32 {
        self.base_pages.iter().sum()
    }

    /// For every frame of the sharing stream, its page and its position in the page.
    fn naive(&self) -> Vec<(u32, usize)> {
        let places = |first_page: usize, pages: &[u32]| {
            let page_places = |(page, &frames): (usize, &u32)| {
                (0..frames as usize).map(move |place| ((first_page + page) as u32, place))
            };
            pages.iter().enumerate().flat_map(page_places).collect()
        };
        let base: Vec<_> = places(0, &self.base_pages);
        let own: Vec<_> = places(self.base_pages.len(), &self.own_pages);
        let shared = &base[self.base_first as usize..][..self.own_start as usize];
        [shared, &own].concat()
    }

    fn shard(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = ShardWriter::new(&mut out);
        for (start, pages) in [(0, &self.base_pages), (self.own_start, &self.own_pages)] {
            let mut first_frame = start;
            for &frames in pages {
                let bytes = vec![9; frames as usize];
                writer.page(&bytes, first_frame, &mut out).unwrap();
                first_frame += frames;
            }
        }
        let frames = self.own_start + self.own_pages.iter().sum::<u32>();
        let base = StreamRecord {
            frames: self.base_frames(),
            page_count: self.base_pages.len() as u32,
            raw_bytes: u64::from(self.base_frames()),
            ..STREAM
        };
        let sharing = StreamRecord {
            stream: 1,
            clock: 1,
            frames,
            own_start: self.own_start,
            base: 0,
            base_first: self.base_first,
            first_page: self.base_pages.len() as u32,
            page_count: self.own_pages.len() as u32,
            raw_bytes: u64::from(frames),
            ..STREAM
        };
        let clocks = [regular(0, base.frames), regular(0, frames)];
        let schema = Schema {
            clock_codec: "raw".to_owned(),
            streams: ["obs", "next_obs"]
                .map(|name| values(name, Kind::Vector, Dtype::U8, &[]))
                .to_vec(),
            ..Schema::default()
        };
        writer
            .end_episode(
                &EpisodeRecords::new(&clocks, &[base, sharing]),
                &schema,
                &mut out,
            )
            .unwrap();
        writer.finish(&schema, &mut out).unwrap();
        out
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn page_lookup_agrees_with_naive(
        base_pages in proptest::collection::vec(1_u32..9, 0..12),
        own_pages in proptest::collection::vec(1_u32..9, 0..12),
        (base_first, own_start) in (any::<Index>(), any::<Index>()),
        requests in proptest::collection::vec((0_u32..120, 0_u32..120), 1..20),
    ) {
        let base_frames: u32 = base_pages.iter().sum();
        let base_first = base_first.index(base_frames as usize + 1) as u32;
        let own_start = own_start.index((base_frames - base_first) as usize + 1) as u32;
        let layout = Layout { base_pages, base_first, own_start, own_pages };
        let (bytes, naive) = (layout.shard(), layout.naive());
        let shard = open(&bytes).unwrap();
        let index = index(&shard, &bytes, 0).unwrap();
        for (start, end) in requests {
            let found: Vec<_> = index
                .segments(1, start..end)
                .flat_map(|segment| index.pages_of(&segment).collect::<Vec<_>>())
                .flat_map(|slice| slice.range.map(move |place| (slice.page, place)))
                .collect();
            let (start, end) = ((start as usize).min(naive.len()), (end as usize).min(naive.len()));
            prop_assert_eq!(&found, naive.get(start..end).unwrap_or_default());
        }
        let whole: usize = index
            .segments(1, 0..u32::MAX)
            .flat_map(|segment| index.pages_of(&segment).collect::<Vec<_>>())
            .map(|slice| { assert!(slice.range.end <= slice.frames); slice.range.len() })
            .sum();
        prop_assert_eq!(whole, naive.len());
    }
}

#[test]
fn the_times_of_an_explicit_clock_are_in_all_of_its_pages() {
    let bytes = crate::fixture::shard_bytes();
    let shard = open(&bytes).unwrap();
    let index = index(&shard, &bytes, 0).unwrap();
    let slices: Vec<_> = index.pages_of_clock(1).collect();
    let ranges: Vec<_> = slices.iter().map(|slice| slice.range.clone()).collect();
    assert_eq!(ranges, [0..2, 0..2], "four images, two times a page");
    assert!(slices.iter().all(|slice| slice.frames == 2));
    assert_eq!(index.pages_of_clock(0).count(), 0);
    assert_eq!(index.pages_of_clock(3).count(), 0);
}

/// An episode of one stream of pages without bytes; only the counts in its index matter.
fn empty_pages(dtype: Dtype, shape: &[usize], starts: &[u32], frames: u32) -> Result<()> {
    let stream = values("x", Kind::Vector, dtype, shape);
    let frame = stream.frame_type()?;
    let schema = Schema {
        clock_codec: "raw".to_owned(),
        streams: vec![stream],
        ..Schema::default()
    };
    let mut out = Vec::new();
    let mut writer = ShardWriter::new(&mut out);
    for &start in starts {
        writer.page(&[], start, &mut out)?;
    }
    let frame_bytes = frame.as_values().map_or(0, |ty| ty.frame_bytes());
    let record = StreamRecord {
        frames,
        page_count: starts.len() as u32,
        raw_bytes: u64::from(frames) * frame_bytes as u64,
        ..STREAM
    };
    let clock = kino_format::ClockRecord {
        period_num: 1,
        period_den: u32::MAX,
        frames,
        ..CLOCK
    };
    writer.end_episode(&EpisodeRecords::new(&[clock], &[record]), &schema, &mut out)?;
    writer.finish(&schema, &mut out)?;
    let shard = open(&out)?;
    index(&shard, &out, 0).map(|_| ())
}

#[test]
fn limits_hold_at_their_edges() {
    let most = MAX_PAGE_FRAMES as u32;
    assert_eq!(empty_pages(Dtype::U8, &[], &[0], most), Ok(()));
    assert!(empty_pages(Dtype::U8, &[], &[0], most + 1).is_err());
    assert_eq!(empty_pages(Dtype::U8, &[], &[0, most], 2 * most), Ok(()));
    assert!(empty_pages(Dtype::U8, &[], &[0, most + 1], 2 * most).is_err());
    // No page decodes to more than the largest frame.
    assert_eq!(empty_pages(Dtype::U8, &[1 << 28], &[0, 1], 2), Ok(()));
    assert!(empty_pages(Dtype::U8, &[1 << 28], &[0], 2).is_err());
    assert_eq!(empty_pages(Dtype::U8, &[1 << 20], &[0], 256), Ok(()));
    assert!(empty_pages(Dtype::U8, &[1 << 20], &[0], 257).is_err());
    // Frames of zero bytes need no pages, and cost nothing however many there are.
    let frames = kino_format::MAX_FRAMES;
    assert_eq!(empty_pages(Dtype::F32, &[0], &[], frames), Ok(()));
    assert!(empty_pages(Dtype::F32, &[0], &[], u32::MAX).is_err());
    assert!(empty_pages(Dtype::F32, &[0], &[0], 1).is_err());
}
