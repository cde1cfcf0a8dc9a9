//! Files made by hand: what is refused, and what other writers do that FFmpeg's muxer does not.

use std::io::Cursor;

use super::{Mp4Codec, Mp4Track};

fn be(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect()
}

fn boxed(kind: &str, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(8 + body.len()).unwrap();
    [&len.to_be_bytes(), kind.as_bytes(), body].concat()
}

/// A table: version and flags 0, then these numbers.
fn table(kind: &str, values: &[u32]) -> Vec<u8> {
    boxed(kind, &[&[0; 4], &*be(values)].concat())
}

fn with(kind: &str, inside: &[Vec<u8>]) -> Vec<u8> {
    boxed(kind, &inside.concat())
}

/// The boxes of a small video: four samples of 10 bytes in two chunks.
struct Parts {
    track_flags: u8,
    handler: &'static str,
    references: Vec<u8>,
    descriptions: Vec<Vec<u8>>,
    edits: Vec<u8>,
    tables: Vec<Vec<u8>>,
    /// Further boxes of `moov`.
    more: Vec<u8>,
    /// Further boxes of the file.
    after: Vec<u8>,
}

fn entry(kind: &str, inside: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 78];
    body[7] = 1;
    body[25] = 64;
    body[27] = 48;
    boxed(kind, &[&*body, inside].concat())
}

fn h264() -> Vec<u8> {
    entry("avc1", &boxed("avcC", &[1, 66, 0, 10, 255, 224, 0]))
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            track_flags: 3,
            handler: "vide",
            references: table("url ", &[]),
            descriptions: vec![h264()],
            edits: Vec::new(),
            tables: vec![
                table("stts", &[1, 4, 100]),
                table("stsc", &[1, 1, 2, 1]),
                table("stsz", &[0, 4, 10, 10, 10, 10]),
                table("stco", &[2, 8, 28]),
                table("stss", &[1, 1]),
            ],
            more: Vec::new(),
            after: Vec::new(),
        }
    }
}

impl Parts {
    /// Replaces a table, or adds it.
    fn set(mut self, new: Vec<u8>) -> Self {
        self.tables.retain(|old| old[4..8] != new[4..8]);
        self.tables.push(new);
        self
    }

    fn without(mut self, kind: &str) -> Self {
        self.tables.retain(|old| &old[4..8] != kind.as_bytes());
        self
    }

    fn track(&self) -> Vec<u8> {
        let count = u32::try_from(self.descriptions.len()).unwrap();
        let stsd = [&[0; 4], &*be(&[count]), &self.descriptions.concat()].concat();
        let dref = [&[0; 4], &*be(&[1]), &self.references].concat();
        let stbl = with("stbl", &[boxed("stsd", &stsd), self.tables.concat()]);
        let dinf = with("dinf", &[boxed("dref", &dref)]);
        let handler = [&[0; 8], self.handler.as_bytes(), &[0; 13]].concat();
        let mut header = vec![0; 84];
        header[3] = self.track_flags;
        header[15] = 1;
        let media = [
            table("mdhd", &[0, 0, 1000, 400, 0]),
            boxed("hdlr", &handler),
            with("minf", &[dinf, stbl]),
        ];
        let track = [
            boxed("tkhd", &header),
            self.edits.clone(),
            with("mdia", &media),
        ];
        with("trak", &track)
    }

    fn file(&self) -> Vec<u8> {
        let movie = table("mvhd", &[0, 0, 1000, 400]);
        let moov = with("moov", &[movie, self.track(), self.more.clone()]);
        [boxed("mdat", &[7; 40]), moov, self.after.clone()].concat()
    }

    fn read(&self) -> Mp4Track {
        read(&self.file()).unwrap()
    }

    fn refused(&self) -> String {
        read(&self.file()).unwrap_err()
    }
}

fn read(file: &[u8]) -> Result<Mp4Track, String> {
    let found = super::parse(Cursor::new(file), file.len() as u64);
    let track = found.map_err(|fault| fault.of("a.mp4".as_ref()).to_string())?;
    check(&track, file.len() as u64);
    Ok(track)
}

/// What is true of every track, whatever the bytes say.
fn check(track: &Mp4Track, len: u64) {
    assert!(track.timescale > 0 && track.width > 0 && track.height > 0);
    assert!(!track.samples.is_empty() && track.samples.len() as u64 <= len);
    for sample in &track.samples {
        assert!(sample.size > 0 && sample.offset + u64::from(sample.size) <= len);
    }
    let shown = track.samples.iter();
    let mut shown: Vec<_> = shown.filter_map(|s| Some((s.rank?, s.pts))).collect();
    shown.sort_unstable();
    assert!((0..).zip(&shown).all(|(number, (rank, _))| *rank == number));
    assert!(shown.is_sorted_by(|(_, a), (_, b)| a < b));
}

fn edit(rows: &[[u32; 3]]) -> Vec<u8> {
    let count = u32::try_from(rows.len()).unwrap();
    let values = [&[count], rows.as_flattened()].concat();
    with("edts", &[table("elst", &values)])
}

fn times(track: &Mp4Track) -> Vec<(i64, i64, bool)> {
    let samples = track.samples.iter();
    samples.map(|s| (s.dts, s.pts, s.rank.is_some())).collect()
}

#[test]
fn a_small_file_is_read() {
    let track = Parts::default().read();
    assert_eq!(track.codec, Mp4Codec::H264);
    let places: Vec<_> = track.samples.iter().map(|s| (s.offset, s.size)).collect();
    assert_eq!(places, [(8, 10), (18, 10), (28, 10), (38, 10)]);
    let all = [
        (0, 0, true),
        (100, 100, true),
        (200, 200, true),
        (300, 300, true),
    ];
    assert_eq!(times(&track), all);
    let keys: Vec<_> = track.samples.iter().map(|s| s.is_key).collect();
    assert_eq!(keys, [true, false, false, false]);
}

#[test]
fn sizes_and_places_have_several_forms() {
    let expected = Parts::default().read();
    for sizes in [
        table("stsz", &[10, 4]),
        boxed("stz2", &[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0xaa, 0xaa]),
        boxed(
            "stz2",
            &[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 10, 10, 10, 10],
        ),
        boxed(
            "stz2",
            &[
                0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 4, 0, 10, 0, 10, 0, 10, 0, 10,
            ],
        ),
    ] {
        assert_eq!(Parts::default().without("stsz").set(sizes).read(), expected);
    }
    let long = table("co64", &[2, 0, 8, 0, 28]);
    assert_eq!(Parts::default().without("stco").set(long).read(), expected);
    let runs = table("stsc", &[2, 1, 2, 1, 2, 2, 1]);
    assert_eq!(Parts::default().set(runs).read(), expected);
    // Chunks may overlap and be out of order.
    let mixed = table("stco", &[2, 20, 8]);
    let places = Parts::default().set(mixed).read();
    assert!(places.samples.iter().map(|s| s.offset).eq([20, 30, 8, 18]));
}

#[test]
fn key_frames_come_from_three_tables() {
    let keys = |parts: Parts| -> Vec<bool> {
        let track = parts.read();
        track.samples.iter().map(|s| s.is_key).collect()
    };
    let none = || Parts::default().without("stss");
    assert_eq!(keys(none()), [true; 4]);
    let empty = none().set(table("stss", &[0]));
    assert_eq!(keys(empty), [true, false, false, false]);
    let partial = Parts::default().set(table("stps", &[1, 3]));
    assert_eq!(keys(partial), [true, false, true, false]);
    let name = u32::from_be_bytes(*b"rap ");
    let group = Parts::default().set(table("sbgp", &[name, 3, 1, 0, 0, 7, 1, 1]));
    assert_eq!(keys(group), [true, true, false, false]);
}

#[test]
fn negative_delays_shift_decode_times() {
    let delays = table("ctts", &[4, 1, 0, 1, 100, 1, 0_u32.wrapping_sub(100), 1, 0]);
    let track = Parts::default().set(delays).read();
    let all = [
        (-100, 0, true),
        (0, 200, true),
        (100, 100, true),
        (200, 300, true),
    ];
    assert_eq!(times(&track), all);
    let ranks: Vec<_> = track.samples.iter().filter_map(|s| s.rank).collect();
    assert_eq!(ranks, [0, 2, 1, 3]);
}

#[test]
fn an_edit_list_waits_and_cuts() {
    let late = Parts {
        edits: edit(&[[250, u32::MAX, 0x1_0000], [200, 100, 0x1_0000]]),
        ..Parts::default()
    };
    let all = [
        (150, 150, false),
        (250, 250, true),
        (350, 350, true),
        (450, 450, false),
    ];
    assert_eq!(times(&late.read()), all);
}

#[test]
fn the_first_enabled_video_track_is_read() {
    let second = Parts {
        descriptions: vec![entry("mp1v", &[])],
        ..Parts::default()
    };
    let mut file = Parts {
        more: second.track(),
        ..Parts::default()
    };
    assert_eq!(file.read().codec, Mp4Codec::H264);
    file.track_flags = 2;
    assert_eq!(file.read().codec, Mp4Codec::Other { fourcc: *b"mp1v" });
    file.track_flags = 3;
    file.handler = "soun";
    assert_eq!(file.read().codec, Mp4Codec::Other { fourcc: *b"mp1v" });
    file.more = Vec::new();
    assert!(file.refused().contains("has no video track"));
}

fn assert_refused(cases: impl IntoIterator<Item = (Parts, &'static str)>) {
    for (parts, what) in cases {
        let error = parts.refused();
        assert!(
            error.starts_with("a.mp4: ") && error.contains(what),
            "{error}"
        );
    }
}

#[test]
fn what_cannot_be_imported_is_refused_with_the_reason() {
    let described = |entries: &[Vec<u8>]| Parts {
        descriptions: entries.to_vec(),
        ..Parts::default()
    };
    let edited = |rows: &[[u32; 3]]| Parts {
        edits: edit(rows),
        ..Parts::default()
    };
    let protected = entry("avc1", &boxed("sinf", &[]));
    let hevc = entry("hvc1", &boxed("hvcC", &[1]));
    let shown = [100, 0, 0x1_0000];
    let before = [100, u32::MAX - 1, 0x1_0000];
    let external = Parts {
        references: table("alis", &[1, 2]),
        ..Parts::default()
    };
    assert_refused([
        (described(&[entry("encv", &[])]), "`stsd` is encrypted"),
        (described(&[protected]), "`stsd` is encrypted"),
        (described(&[h264(), hevc]), "changes the codec"),
        (described(&[entry("avc1", &[])]), "has no avcC"),
        (described(&[]), "claims 0 sample descriptions"),
        (external, "keeps its samples in another file"),
        (edited(&[shown, shown]), "shows several parts"),
        (edited(&[[100, 0, 0x2_0000]]), "at another speed"),
        (edited(&[[100, u32::MAX, 0x1_0000]]), "shows nothing"),
        (edited(&[[100, 500, 0x1_0000]]), "shows no frame"),
        (edited(&[[0, 0, 0x1_0000]]), "shows no frame"),
        (edited(&[before]), "begins before the first frame"),
    ]);
}

#[test]
fn tables_that_contradict_each_other_are_refused() {
    let set = |kind: &str, values: &[u32]| Parts::default().set(table(kind, values));
    assert_refused([
        (
            set("ctts", &[2, 1, 100, 3, 0]),
            "at the same time, 100 units",
        ),
        (
            set("stsz", &[0, 4, 10, 10, 10, 0]),
            "empty sample at byte 38",
        ),
        (
            set("stsz", &[0, 3, 10, 10, 10]),
            "more samples than the 3 of stsz",
        ),
        (
            set("stsz", &[0, 5, 10, 10, 10, 10, 10]),
            "has 4 samples, and stsz has 5",
        ),
        (set("stsz", &[0, 0]), "without frames"),
        (set("stco", &[2, 8, 1 << 20]), "outside of the file of"),
        (set("stts", &[1, 3, 100]), "has times of 3 samples"),
        (set("stts", &[1, 5, 100]), "of more samples than the 4"),
        (set("stts", &[1, 4, u32::MAX / 4]), "has a time of"),
        (set("stss", &[2, 3, 2]), "lists sample 2 after 3"),
        (set("stss", &[1, 0]), "lists sample 0"),
        (set("stss", &[1, 5]), "lists sample 5 after 0, of 4"),
        (set("stsc", &[1, 2, 2, 1]), "has a run from chunk 2"),
        (Parts::default().without("stco"), "has no box stco"),
    ]);
}

#[test]
fn counts_that_the_bytes_do_not_back_are_refused() {
    let huge = u32::MAX;
    for (lie, what) in [
        (
            table("stts", &[huge, 4, 100]),
            "claims 4294967295 entries, and has 1",
        ),
        (table("stts", &[1, huge, 100]), "of more samples"),
        (table("stts", &[2, huge, 0, huge, 0]), "of more samples"),
        (table("ctts", &[huge]), "claims 4294967295 entries"),
        (table("stsc", &[huge, 1, 2, 1]), "claims 4294967295 entries"),
        (
            table("stsc", &[1, 1, huge, 1]),
            "has more samples than the 4",
        ),
        (table("stsz", &[0, huge, 10]), "claims 4294967295 entries"),
        (
            table("stsz", &[10, huge]),
            "claims 4294967295 samples of 10 bytes",
        ),
        (
            table("stsz", &[1, huge]),
            "claims 4294967295 samples of 1 bytes",
        ),
        (table("stco", &[huge, 8]), "claims 4294967295 entries"),
        (table("stss", &[huge, 1]), "claims 4294967295 entries"),
    ] {
        let error = Parts::default().set(lie).refused();
        assert!(error.contains(what), "{error}");
    }
    let half = [0, 0, 0, 0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff, 0xaa];
    let parts = Parts::default().without("stsz").set(boxed("stz2", &half));
    assert!(parts.refused().contains("`stz2` is too short"));
    let edits = with("edts", &[table("elst", &[huge, 100, 0, 0x1_0000])]);
    let parts = Parts {
        edits,
        ..Parts::default()
    };
    assert!(read(&parts.file()).is_err());
}

/// A fragmented file with a run of samples, of 10 bytes each by default. Its last 40 bytes are media data.
fn fragmented(run: &[u32], after: &[u8]) -> Vec<u8> {
    fragmented_by(10, run, after)
}

fn fragmented_by(size: u32, run: &[u32], after: &[u8]) -> Vec<u8> {
    let mut parts = Parts {
        more: with("mvex", &[table("trex", &[1, 1, 100, size, 0])]),
        ..Parts::default()
    };
    for empty in [
        table("stts", &[0]),
        table("stsc", &[0]),
        table("stsz", &[0, 0]),
        table("stco", &[0]),
    ] {
        parts = parts.set(empty);
    }
    let header = table("tfhd", &[1]);
    let traf = with("traf", &[header, boxed("trun", &be(run)), after.to_vec()]);
    parts.after = [with("moof", &[traf]), boxed("mdat", &[7; 40])].concat();
    parts.file()
}

#[test]
fn runs_of_fragments_end_with_the_file() {
    let track = read(&fragmented(&[1, 3, 40], &[])).unwrap();
    let all = [(0, 0, true), (100, 100, true), (200, 200, true)];
    assert_eq!(times(&track), all);
    let error = read(&fragmented(&[1, u32::MAX, 40], &[])).unwrap_err();
    assert!(error.contains("outside of the file"), "{error}");
    let error = read(&fragmented(&[0x201, u32::MAX, 40, 10], &[])).unwrap_err();
    assert!(
        error.contains("claims 4294967295 samples, in 4 bytes"),
        "{error}"
    );
    // Runs may overlap, but there are never more samples than bytes.
    let again = boxed("trun", &be(&[1, 40, 40]));
    let many = fragmented_by(1, &[1, 40, 40], &again.repeat(600));
    let error = read(&many).unwrap_err();
    assert!(error.contains("one per byte"), "{error}");
    let error = read(&fragmented(&[1, 1, 1 << 31], &[])).unwrap_err();
    assert!(error.contains("begins before the file"), "{error}");
}

#[test]
fn deep_and_endless_boxes_are_refused() {
    let mut nested = Vec::new();
    for level in 0..2000 {
        let kind = ["moov", "trak", "mdia", "minf", "stbl"][4 - level % 5];
        nested = boxed(kind, &nested);
    }
    assert!(read(&nested).is_err());
    // A million boxes of no content.
    let empty = [0, 0, 0, 8, b'f', b'r', b'e', b'e'].repeat(1 << 20);
    assert!(read(&empty).unwrap_err().contains("has no box moov"));
    for start in [
        &[0, 0, 0, 7, b'm', b'o', b'o', b'v'][..],
        &[0, 0, 0, 1, b'm', b'o', b'o', b'v', 0, 0, 0, 0, 0, 0, 0, 15],
        &[
            0, 0, 0, 1, b'm', b'o', b'o', b'v', 255, 255, 255, 255, 255, 255, 255, 255,
        ],
        &[
            0, 0, 0, 1, b'm', b'd', b'a', b't', 255, 255, 255, 255, 255, 255, 255, 255,
        ],
        &[255, 255, 255, 255, b'm', b'o', b'o', b'v'],
        &[],
    ] {
        assert!(read(start).is_err(), "{start:?}");
    }
}

#[test]
fn long_headers_and_a_last_box_without_size_are_read() {
    let parts = Parts::default();
    let expected = parts.read();
    let file = parts.file();
    let (media, moov) = file.split_at(48);
    let mut open = [media, moov].concat();
    open[48..52].fill(0);
    assert_eq!(read(&open).unwrap(), expected);
    let len = (moov.len() as u64 + 8).to_be_bytes();
    let long = [media, &be(&[1]), b"moov", &len, &moov[8..]].concat();
    assert_eq!(read(&long).unwrap(), expected);
}

#[test]
fn flipping_any_bit_and_cutting_anywhere_is_an_error_or_a_right_looking_answer() {
    let delays = table("ctts", &[4, 1, 0, 1, 100, 1, 0_u32.wrapping_sub(100), 1, 0]);
    let parts = Parts {
        edits: edit(&[[400, 0, 0x1_0000]]),
        ..Parts::default()
    };
    let esds = [
        &[0, 0, 0, 0, 3, 25, 0, 1, 0, 4, 17, 0x20, 0x11][..],
        &[0; 11],
        &[5, 2, 1, 2, 6, 1, 2],
    ];
    let mpeg4 = Parts {
        descriptions: vec![entry("mp4v", &boxed("esds", &esds.concat()))],
        ..Parts::default()
    };
    for whole in [
        parts.set(delays).file(),
        mpeg4.file(),
        fragmented(&[0x305, 2, 80, 0, 100, 10, 100, 30], &[]),
    ] {
        read(&whole).unwrap();
        let mut accepted = 0;
        for bit in 0..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            accepted += usize::from(read(&bytes).is_ok());
        }
        assert!(accepted > 0);
        for len in 0..whole.len() {
            let cut = read(&whole[..len]);
            assert!(cut.is_err(), "{len} of {} bytes", whole.len());
        }
    }
}
