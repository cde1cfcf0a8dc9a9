//! What is written is read back, and what cannot be written is refused.

use std::io::{Cursor, Read, Seek, SeekFrom, Write};

use proptest::collection::vec;
use proptest::{prop_assert_eq, proptest};

use super::super::{Mp4Chroma, Mp4Codec, Mp4Color, Mp4Orientation, Mp4Pixels, Mp4Track, parse};
use super::{Mp4Header, Mp4Packet, Mp4Writer, Muxer, check_header};

fn header() -> Mp4Header {
    Mp4Header {
        codec: Mp4Codec::H264,
        config: vec![1, 66, 0, 10, 255, 224, 0],
        width: 64,
        height: 48,
        orientation: Mp4Orientation::default(),
        color: None,
        pixels: Some(Mp4Pixels {
            bit_depth: 8,
            chroma: Mp4Chroma::Yuv420,
        }),
        timescale: 15360,
        frame_duration: 512,
    }
}

/// `(dts, pts, is_key)`; what is negative is not shown.
type Times = (i64, i64, bool);

fn write(header: &Mp4Header, packets: &[Times]) -> Result<Vec<u8>, String> {
    let hidden: Vec<_> = packets.iter().map(|(_, pts, _)| *pts >= 0).collect();
    write_shown(header, packets, &hidden)
}

fn write_shown(header: &Mp4Header, packets: &[Times], shown: &[bool]) -> Result<Vec<u8>, String> {
    let written = || {
        check_header(header)?;
        let mut muxer = Muxer::new(Cursor::new(Vec::new()), header.clone())?;
        for (number, ((dts, pts, is_key), is_shown)) in packets.iter().zip(shown).enumerate() {
            muxer.push(Mp4Packet {
                data: &payload(number),
                dts: *dts,
                pts: *pts,
                is_key: *is_key,
                is_shown: *is_shown,
            })?;
        }
        muxer.finish()
    };
    let cursor = written().map_err(|refusal: super::Refusal| refusal.of("a.mp4".as_ref()));
    cursor.map(Cursor::into_inner).map_err(|e| e.to_string())
}

fn payload(number: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + number % 3)
}

fn read(file: &[u8]) -> Mp4Track {
    parse(Cursor::new(file), file.len() as u64).unwrap()
}

/// Everything of a packet that can be read back.
fn times(track: &Mp4Track) -> Vec<Times> {
    let samples = track.samples.iter();
    samples.map(|s| (s.dts, s.pts, s.is_key)).collect()
}

#[track_caller]
fn round_trip(header: &Mp4Header, packets: &[Times]) -> Mp4Track {
    let file = write(header, packets).unwrap();
    let track = read(&file);
    assert_eq!(times(&track), packets);
    for (number, sample) in track.samples.iter().enumerate() {
        let start = usize::try_from(sample.offset).unwrap();
        let end = start + usize::try_from(sample.size).unwrap();
        assert_eq!(file[start..end], payload(number));
        assert_eq!(sample.rank.is_some(), sample.pts >= 0);
    }
    track
}

fn refused(packets: &[Times]) -> String {
    write(&header(), packets).unwrap_err()
}

#[test]
fn what_is_said_about_all_packets_is_read_back() {
    let track = round_trip(&header(), &[(0, 0, true), (512, 512, false)]);
    assert_eq!(Mp4Header::of(&track), header());
}

#[test]
fn every_orientation_is_read_back() {
    for is_mirrored in [false, true] {
        for degrees in [0, 90, 180, 270] {
            let orientation = Mp4Orientation {
                is_mirrored,
                degrees,
            };
            let header = Mp4Header {
                orientation,
                ..header()
            };
            let track = round_trip(&header, &[(0, 0, true)]);
            assert_eq!(track.orientation, orientation);
        }
    }
}

#[test]
fn every_codec_is_read_back_with_its_configuration_color_and_pixels() {
    let color = Some(Mp4Color {
        primaries: 9,
        transfer: 16,
        matrix: 9,
        is_full_range: Some(true),
    });
    let hvcc = [&[1; 16][..], &[0xfd, 0xfa], &[0; 5]].concat();
    let av1c = vec![0x81, 0, 0x4c, 0];
    let deep = |chroma| Mp4Pixels {
        bit_depth: 10,
        chroma,
    };
    let mpeg4 = Mp4Codec::Mp4v { object_type: 0x20 };
    for (codec, config, pixels) in [
        (Mp4Codec::Hevc, hvcc, Some(deep(Mp4Chroma::Yuv420))),
        (Mp4Codec::Av1, av1c, Some(deep(Mp4Chroma::Yuv420))),
        (Mp4Codec::Av1, vec![], None),
        (Mp4Codec::Vp9, vec![], Some(deep(Mp4Chroma::Yuv440))),
        (Mp4Codec::Vp9, vec![], None),
        (mpeg4, vec![7; 300], None),
        (mpeg4, vec![], None),
    ] {
        let header = Mp4Header {
            codec,
            config,
            pixels,
            color,
            ..header()
        };
        let track = round_trip(&header, &[(0, 0, true), (512, 512, true)]);
        assert_eq!(Mp4Header::of(&track), header);
    }
}

#[test]
fn frames_that_are_reordered_are_shown_from_the_time_that_was_asked_for() {
    let b_frames = |from: i64| {
        let times = [
            (-2, 0, true),
            (-1, 4, false),
            (0, 2, false),
            (1, 1, false),
            (2, 3, false),
        ];
        times.map(|(dts, pts, is_key)| (from + 512 * dts, from + 512 * pts, is_key))
    };
    for from in [0, 1, 511, 512, 7 * 512 + 3, 15360 * 86400 * 365] {
        let track = round_trip(&header(), &b_frames(from));
        let ranks: Vec<_> = track.samples.iter().map(|s| s.rank).collect();
        assert_eq!(ranks, [0, 4, 2, 1, 3].map(Some));
    }
    let found = write_shown(&header(), &b_frames(-1), &[true; 5]).unwrap_err();
    assert!(found.contains("is shown at -1, before 0"), "{found}");
}

#[test]
fn one_frame_and_two_frames_are_read_back() {
    for from in [0, 1000] {
        round_trip(&header(), &[(from, from, true)]);
        round_trip(
            &header(),
            &[(from, from, true), (from + 1, from + 1, false)],
        );
        round_trip(
            &header(),
            &[(from - 512, from + 512, true), (from, from, false)],
        );
    }
}

#[test]
fn uneven_times_are_read_back() {
    let times: Vec<_> = (0..500)
        .map(|i| (i * i / 3 + i, i * i / 3 + i, i % 50 == 0))
        .collect();
    round_trip(&header(), &times);
}

#[test]
fn more_packets_than_16_bits_count_are_read_back() {
    let times: Vec<_> = (0..70_000)
        .map(|i| (512 * i - 512, 512 * (i ^ 1), i % 7 == 0))
        .collect();
    // The second of each pair is shown first.
    let track = round_trip(&header(), &times);
    assert_eq!(track.samples[65_537].rank, Some(65_536));
}

#[test]
fn times_of_more_than_32_bits_are_read_back() {
    let long = i64::from(1 << 28);
    let times: Vec<_> = (0..40).map(|i| (long * i, long * i, true)).collect();
    round_trip(&header(), &times);
}

#[test]
fn frames_before_and_after_the_part_that_is_shown_stay_hidden() {
    let before = [
        (-1024, -1024, true),
        (-512, -512, false),
        (0, 0, false),
        (512, 512, false),
    ];
    round_trip(&header(), &before);
    // FFmpeg lists what follows only up to the next key frame.
    let shown = [true, true, false, false];
    let times: Vec<_> = (0..4).map(|i| (512 * i, 512 * i, i == 0)).collect();
    let file = write_shown(&header(), &times, &shown).unwrap();
    let ranks: Vec<_> = read(&file).samples.iter().map(|s| s.rank).collect();
    assert_eq!(ranks, [Some(0), Some(1), None, None]);
}

#[test]
fn frames_that_are_shown_before_they_are_decoded_are_decoded_earlier() {
    let times = [
        (0, 0, true),
        (512, 1536, false),
        (1024, 512, false),
        (1536, 1024, false),
    ];
    let track = read(&write(&header(), &times).unwrap());
    let earlier = times.map(|(dts, pts, is_key)| (dts - 512, pts, is_key));
    assert_eq!(super::tests::times(&track), earlier);
}

#[test]
fn what_cannot_be_written_is_refused_with_its_reason() {
    let far = i64::from(1 << 28) + 1;
    for (packets, reason) in [
        (&[][..], "a.mp4: an MP4 file cannot have no packets"),
        (&[(0, 0, false)], "1 packets without a key frame"),
        (
            &[(0, 0, true), (0, 1, false)],
            "decoded at 0 after one at 0; decode times must increase (packet 1)",
        ),
        (
            &[(0, 0, true), (-5, 1, false)],
            "decoded at -5 after one at 0; decode",
        ),
        (
            &[(0, 0, true), (far, far, true)],
            "units later; use a smaller timescale",
        ),
        (
            &[(0, far, true)],
            "units apart; use a smaller timescale (packet 0)",
        ),
        (&[(i64::MIN, i64::MAX, true)], "units apart"),
        (&[(i64::MIN, i64::MIN, true)], "none is shown"),
        (
            &[(i64::MAX, i64::MAX, true)],
            "times beyond 1152921504606846975 units",
        ),
        (&[(i64::MAX, i64::MAX - far + 5, true)], "times beyond"),
        (
            &[(0, 0, true), (1, 0, false)],
            "two frames that are shown at 0",
        ),
        (&[(-4, -4, true)], "none is shown"),
        (
            &[(0, 512, true), (1, 0, true)],
            "key frames that are shown before the first packet's",
        ),
    ] {
        let found = refused(packets);
        assert!(found.contains(reason), "{found}");
    }
    let apart = [(0, -(far - 1), true), (1, far, true)];
    let found = write_shown(&header(), &apart, &[true; 2]).unwrap_err();
    assert!(found.contains("both differ by more than"), "{found}");
    let times: Vec<_> = (0..3).map(|i| (512 * i, 512 * i, i == 0)).collect();
    let found = write_shown(&header(), &times, &[true, false, true]).unwrap_err();
    assert!(found.contains("not shown between some that are"), "{found}");
}

#[test]
fn a_header_that_cannot_be_written_is_refused_with_its_reason() {
    let of = |change: fn(&mut Mp4Header)| {
        let mut header = header();
        change(&mut header);
        write(&header, &[(0, 0, true)]).unwrap_err()
    };
    type Change = fn(&mut Mp4Header);
    let cases: [(Change, &str); 9] = [
        (
            |h| h.timescale = 0,
            "a timescale of 0; it must be 1 to 2147483647",
        ),
        (|h| h.timescale = 1 << 31, "a timescale of 2147483648"),
        (|h| h.frame_duration = 0, "a last frame of 0 units"),
        (|h| h.width = 0, "images of 0x48 pixels"),
        (|h| h.config.clear(), "H.264 without a codec configuration"),
        (
            |h| h.config = vec![0; (1 << 20) + 1],
            "configuration of 1048577 bytes",
        ),
        (
            |h| h.codec = Mp4Codec::Other { fourcc: *b"jp\n " },
            "the codec `jp\\n `; H.264,",
        ),
        (
            |h| {
                h.codec = Mp4Codec::Vp9;
                h.pixels = h.pixels.map(|pixels| Mp4Pixels {
                    bit_depth: 9,
                    ..pixels
                });
            },
            "VP9 of 9 bits",
        ),
        (
            |h| {
                h.codec = Mp4Codec::Vp9;
                h.pixels = h.pixels.map(|pixels| Mp4Pixels {
                    chroma: Mp4Chroma::Gray,
                    ..pixels
                });
            },
            "VP9 without chroma",
        ),
    ];
    for (change, reason) in cases {
        let found = of(change);
        assert!(found.contains(reason), "{found}");
    }
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mp4");
    std::fs::write(&path, b"mine").unwrap();
    Mp4Writer::create(&path, &header()).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

proptest! {
    /// Whatever the times are, a file is refused or read back with the same times of the frames that are shown.
    #[test]
    fn any_times_are_refused_or_read_back(
        packets in vec((1..9_i64, -2..20_i64, 0..8_u8, 0..20_u8), 1..12),
        from in -5..5_i64,
    ) {
        let (mut dts, mut times, mut shown) = (from, Vec::new(), Vec::new());
        for (step, delay, key, hidden) in packets {
            dts += step;
            times.push((dts, dts + delay, key == 0));
            shown.push(hidden != 0);
        }
        let Ok(file) = write_shown(&header(), &times, &shown) else {
            return Ok(());
        };
        let expected = times.iter().zip(&shown).enumerate().filter(|(_, (_, shown))| **shown);
        let expected: Vec<_> = expected
            .map(|(number, ((_, pts, is_key), _))| (payload(number), *pts, *is_key))
            .collect();
        let track = read(&file);
        let found = track.samples.iter().filter(|sample| sample.rank.is_some());
        let found: Vec<_> = found
            .map(|sample| {
                let start = usize::try_from(sample.offset).unwrap();
                let end = start + usize::try_from(sample.size).unwrap();
                (file[start..end].to_vec(), sample.pts, sample.is_key)
            })
            .collect();
        prop_assert_eq!(found, expected);
    }
}

/// A file whose large writes are holes of zeros.
#[derive(Default)]
struct Sparse {
    written: Vec<(u64, Vec<u8>)>,
    at: u64,
    len: u64,
}

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() < 1 << 20 {
            self.written.push((self.at, bytes.to_vec()));
        }
        self.at += bytes.len() as u64;
        self.len = self.len.max(self.at);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Sparse {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.len - self.at).unwrap();
        let count = out.len().min(left);
        for (place, byte) in (self.at..).zip(&mut out[..count]) {
            *byte = 0;
            for (start, bytes) in &self.written {
                let inside = place.checked_sub(*start);
                let inside = inside.and_then(|i| bytes.get(usize::try_from(i).unwrap()));
                *byte = inside.copied().unwrap_or(*byte);
            }
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.checked_add_signed(by).unwrap(),
            SeekFrom::End(by) => self.len.checked_add_signed(by).unwrap(),
        };
        Ok(self.at)
    }
}

#[test]
fn a_file_of_more_than_4_gib_is_read_back() {
    let large = vec![0; 512 << 20];
    for count in [7, 8, 9] {
        let mut muxer = Muxer::new(Sparse::default(), header()).unwrap();
        for number in 0..count {
            let packet = Mp4Packet {
                data: &large,
                dts: 512 * number,
                pts: 512 * number,
                is_key: true,
                is_shown: true,
            };
            muxer.push(packet).unwrap();
        }
        let mut file = muxer.finish().unwrap();
        file.at = 0;
        let len = file.len;
        let track = parse(&mut file, len).unwrap();
        let places: Vec<_> = track.samples.iter().map(|s| s.offset).collect();
        let first = places[0];
        let expected: Vec<_> = (0..places.len() as u64)
            .map(|i| first + (i << 29))
            .collect();
        assert_eq!(places, expected);
        let is_wide = file
            .written
            .iter()
            .any(|(_, bytes)| bytes.windows(4).any(|w| w == b"co64"));
        assert_eq!(is_wide, count == 9);
    }
}
