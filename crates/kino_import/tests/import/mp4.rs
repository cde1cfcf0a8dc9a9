//! MP4 files of many writers, compared with what FFmpeg's demuxer says about them (`fixtures/mp4/expected.json`).

use std::collections::BTreeMap;
use std::fs;

use kino_import::{
    Mp4Chroma, Mp4Codec, Mp4Color, Mp4Orientation, Mp4Pixels, Mp4Sample, Mp4Track, read_mp4,
};
use serde_json::Value;

use crate::fixture;

/// What FFmpeg says about one file.
struct Expected {
    name: String,
    said: Value,
}

impl Expected {
    fn number(&self, key: &str) -> i64 {
        self.said[key].as_i64().unwrap()
    }

    fn text(&self, key: &str) -> &str {
        self.said[key].as_str().unwrap()
    }

    /// `[pos, size, pts, dts, key, discard]` of each packet.
    fn packets(&self) -> Vec<[i64; 6]> {
        let packets = self.said["packets"].as_array().unwrap().iter();
        let numbers = |packet: &Value| -> Vec<i64> {
            let numbers = packet.as_array().unwrap().iter();
            numbers.map(|number| number.as_i64().unwrap()).collect()
        };
        let packets = packets.map(|packet| numbers(packet).try_into().unwrap());
        packets.collect()
    }
}

fn expected() -> Vec<Expected> {
    let text = fs::read_to_string(fixture("mp4/expected.json")).unwrap();
    let files: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    let files = files.into_iter();
    files.map(|(name, said)| Expected { name, said }).collect()
}

fn read(name: &str) -> Mp4Track {
    read_mp4(&fixture(&format!("mp4/files/{name}"))).unwrap()
}

fn row(sample: &Mp4Sample) -> [i64; 6] {
    [
        sample.offset.cast_signed(),
        sample.size.into(),
        sample.pts,
        sample.dts,
        sample.is_key.into(),
        sample.rank.is_none().into(),
    ]
}

#[test]
fn packets_are_those_of_ffmpeg() {
    let files = expected();
    assert!(files.len() > 40);
    for file in files {
        let found: Vec<_> = read(&file.name).samples.iter().map(row).collect();
        assert_eq!(found, file.packets(), "{}", file.name);
    }
}

#[test]
fn frames_are_ranked_by_the_time_they_are_shown() {
    for file in expected() {
        let mut times: Vec<_> = file.packets();
        times.retain(|[.., discard]| *discard == 0);
        let mut times: Vec<_> = times.iter().map(|[_, _, pts, ..]| *pts).collect();
        times.sort_unstable();
        let samples = read(&file.name).samples;
        let mut ranked: Vec<_> = samples
            .iter()
            .filter_map(|s| Some((s.rank?, s.pts)))
            .collect();
        ranked.sort_unstable();
        let numbered: Vec<_> = (0..).zip(times).collect();
        assert_eq!(ranked, numbered, "{}", file.name);
    }
}

#[test]
fn codecs_and_configurations_are_those_of_ffmpeg() {
    for file in expected() {
        let track = read(&file.name);
        let hex: String = track
            .config
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, file.text("extradata"), "{}", file.name);
        assert_eq!(i64::from(track.width), file.number("width"));
        assert_eq!(i64::from(track.height), file.number("height"));
        assert_eq!(i64::from(track.timescale), file.number("timescale"));
        let codec = match (file.text("codec"), file.text("tag")) {
            ("h264", "avc1") => Mp4Codec::H264,
            ("hevc", "hev1" | "hvc1") => Mp4Codec::Hevc,
            ("libdav1d", "av01") => Mp4Codec::Av1,
            ("vp9", "vp09") => Mp4Codec::Vp9,
            ("mpeg4", "mp4v") => Mp4Codec::Mp4v { object_type: 0x20 },
            ("mjpeg", "jpeg") => Mp4Codec::Other { fourcc: *b"jpeg" },
            other => panic!("{}: {other:?}", file.name),
        };
        assert_eq!(track.codec, codec, "{}", file.name);
    }
}

#[test]
fn pixels_are_those_that_ffmpeg_decodes() {
    let (mut said, mut silent) = (0, Vec::new());
    for file in expected() {
        let (bit_depth, chroma) = match file.text("format") {
            "yuv420p" | "yuvj420p" => (8, Mp4Chroma::Yuv420),
            "yuv420p10le" => (10, Mp4Chroma::Yuv420),
            "yuv444p10le" => (10, Mp4Chroma::Yuv444),
            other => panic!("{}: {other}", file.name),
        };
        match read(&file.name).pixels {
            Some(pixels) => {
                assert_eq!(pixels, Mp4Pixels { bit_depth, chroma }, "{}", file.name);
                said += 1;
            }
            None => silent.push(file.name),
        }
    }
    assert!(said > 35);
    assert_eq!(silent, ["mjpeg.mov", "mpeg4.mp4", "opencv.mp4"]);
}

#[test]
fn color_is_what_ffmpeg_reads() {
    let mut said = Vec::new();
    for file in expected() {
        let Some(color) = read(&file.name).color else {
            continue;
        };
        // FFmpeg's range is 0 if unknown, 1 for 16 to 235, 2 for full.
        let range = match color.is_full_range {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        };
        let found = [color.primaries, color.transfer, color.matrix, range];
        let found: Vec<_> = found.map(i64::from).into();
        let expected: Vec<_> = file.said["color"].as_array().unwrap().iter().collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|value| value.as_i64().unwrap())
            .collect();
        assert_eq!(found, expected, "{}", file.name);
        said.push((file.name, color));
    }
    let full = Mp4Color {
        primaries: 1,
        transfer: 1,
        matrix: 1,
        is_full_range: Some(true),
    };
    assert!(said.contains(&("color.mp4".to_owned(), full)), "{said:?}");
}

#[test]
fn images_are_turned_as_ffmpeg_turns_them() {
    for file in expected() {
        let found = read(&file.name).orientation;
        // FFmpeg turns counterclockwise, and has a flag of its own for mirrored images.
        let degrees = (-file.number("rotation")).rem_euclid(360);
        let expected = match &*file.name {
            "ffmpeg_mirrored.mp4" => Mp4Orientation {
                is_mirrored: true,
                degrees: 0,
            },
            _ => Mp4Orientation {
                is_mirrored: false,
                degrees: degrees.try_into().unwrap(),
            },
        };
        assert_eq!(found, expected, "{}", file.name);
    }
    assert_eq!(read("phone.mov").orientation.degrees, 90);
    assert_eq!(read("upside_down.mp4").orientation.degrees, 180);
    assert_eq!(read("ffmpeg_rotated.mp4").orientation.degrees, 270);
}

#[test]
fn damaged_files_are_refused_or_read_within_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.mp4");
    for name in ["h264_b_frames.mp4", "fragments_dash.mp4", "opencv.mp4"] {
        let whole = fs::read(fixture(&format!("mp4/files/{name}"))).unwrap();
        let mut refused = 0;
        for place in (0..whole.len()).step_by(11) {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << (place % 8);
            fs::write(&path, &bytes).unwrap();
            match read_mp4(&path) {
                Err(_) => refused += 1,
                Ok(track) => check(&track, whole.len()),
            }
            fs::write(&path, &whole[..place]).unwrap();
            if let Ok(track) = read_mp4(&path) {
                // Whole fragments may be left.
                assert!(name.starts_with("fragments"), "{name}, {place} bytes");
                check(&track, place);
            }
        }
        assert!(refused > 10, "{name}: {refused}");
    }
}

/// What is true of every track, whatever the bytes say.
fn check(track: &Mp4Track, len: usize) {
    assert!(!track.samples.is_empty() && track.samples.len() <= len);
    for sample in &track.samples {
        assert!(sample.size > 0 && sample.offset + u64::from(sample.size) <= len as u64);
    }
}
