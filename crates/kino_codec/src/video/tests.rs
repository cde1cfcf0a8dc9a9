//! A page of two AV1 groups that was made without this library: `tests/make_golden_video.py`.

use super::*;
use crate::frame::Dtype;

const GOLDEN: &str = include_str!("../../tests/golden/video-av1.txt");
const FRAMES: usize = 6;

fn line(name: &str) -> &'static str {
    let mut lines = GOLDEN.lines();
    lines.find_map(|line| line.strip_prefix(name)).unwrap()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().as_chunks::<2>().0;
    let byte = |two: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    digits.iter().map(byte).collect()
}

fn page() -> Vec<u8> {
    from_hex(line("page 6 "))
}

fn frame() -> FrameType {
    FrameType::values(Dtype::U8, &[64, 66, 3]).unwrap()
}

fn decoder() -> Box<dyn Decoder> {
    let codec = crate::codec("video:coding=av1").unwrap();
    codec.decoder(&frame(), &[]).unwrap()
}

fn decode(page: &[u8], range: Range<usize>, scratch: &mut Scratch) -> Result<Vec<u8>> {
    let mut out = vec![0; range.len() * decoder().frame_bytes()];
    let page = Page {
        bytes: page,
        frames: FRAMES,
    };
    decoder().decode(page, range, &mut out, scratch)?;
    Ok(out)
}

#[test]
fn every_range_of_a_page_is_that_part_of_all_frames() {
    let (page, expected) = (page(), from_hex(line("values ")));
    let mut scratch = Scratch::new();
    let size = decoder().frame_bytes();
    for start in 0..FRAMES {
        for end in start..=FRAMES {
            let found = decode(&page, start..end, &mut scratch).unwrap();
            assert!(
                found == expected[start * size..end * size],
                "{start}..{end}"
            );
        }
    }
}

#[test]
fn the_frames_of_a_page_come_one_after_the_other() {
    let expected = from_hex(line("values "));
    let mut cursor = VideoCursor::new(VideoCoding::Av1, &frame(), page(), FRAMES).unwrap();
    let mut out = vec![0; decoder().frame_bytes()];
    for wanted in expected.chunks_exact(out.len()) {
        cursor.next(&mut out).unwrap();
        assert!(out == wanted);
    }
    assert!(cursor.next(&mut out).is_err());
    assert!(cursor.next(&mut [0; 3]).is_err());
}

#[test]
fn a_frame_costs_the_frames_of_its_group_before_it() {
    let bytes = page();
    let page = Page {
        bytes: &bytes,
        frames: FRAMES,
    };
    assert_eq!(decoder().costs(page).unwrap(), [1, 2, 3, 1, 2, 3]);
}

#[test]
fn pages_are_pushed_whole_and_stored_unchanged() {
    let codec = crate::codec("video").unwrap();
    assert_eq!(codec.spec().to_string(), "video:coding=av1");
    assert_eq!(
        (codec.carries(), codec.has_own_pages()),
        (Some("video"), true)
    );
    let (page, frame) = (page(), frame());
    let encode = |frames: &[&[u8]]| {
        let mut out = Encoded::default();
        let frames = Frames::bytes(&frame, frames);
        let encoded = codec.encode(&frames, NonZeroUsize::MIN, &mut out, &mut Scratch::new());
        encoded.map(|()| out.pages)
    };
    let whole: Vec<&[u8]> = vec![&page, &[], &[], &[], &[], &[]];
    let twice = encode(&[whole.clone(), whole.clone()].concat()).unwrap();
    assert_eq!(twice.len(), 2);
    assert!(
        twice
            .iter()
            .all(|one| one.frames == FRAMES && one.bytes == page)
    );
    // A frame too few, none of the page, another one inside.
    for wrong in [&whole[..5], &whole[1..], &[&page[..], &page, &[]]] {
        assert!(encode(wrong).is_err());
    }
    let pixels = Frames::values(&frame, &[0; 64 * 66 * 3]).unwrap();
    let mut out = Encoded::default();
    let encoded = codec.encode(&pixels, NonZeroUsize::MIN, &mut out, &mut Scratch::new());
    assert!(encoded.unwrap_err().to_string().contains("use `av1`"));
}

#[test]
fn damage_is_an_error_or_other_pixels_and_never_a_panic() {
    let (page, mut scratch) = (page(), Scratch::new());
    for byte in 0..page.len() {
        for bit in [0, 3, 7] {
            let mut bad = page.clone();
            bad[byte] ^= 1 << bit;
            let _ = decode(&bad, 0..FRAMES, &mut scratch);
        }
        assert!(
            decode(&page[..byte], 0..FRAMES, &mut scratch).is_err(),
            "{byte}"
        );
    }
    // The instance that saw all that is not used for others.
    assert!(decode(&page, 5..6, &mut scratch).is_ok());
}

#[test]
fn images_of_another_size_are_refused() {
    let frame = FrameType::values(Dtype::U8, &[66, 64, 3]).unwrap();
    let codec = crate::codec("video:coding=av1").unwrap();
    let decoder = codec.decoder(&frame, &[]).unwrap();
    let bytes = page();
    let page = Page {
        bytes: &bytes,
        frames: FRAMES,
    };
    let mut out = vec![0; FRAMES * decoder.frame_bytes()];
    let error = decoder.decode(page, 0..FRAMES, &mut out, &mut Scratch::new());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("an image is 64 × 66, not 66 × 64"),
        "{error}"
    );
}

#[test]
fn frames_that_no_video_has_are_refused() {
    let codec = crate::codec("video:coding=h264").unwrap();
    for (dtype, shape) in [
        (Dtype::U8, &[64, 64][..]),
        (Dtype::U8, &[64, 64, 4]),
        (Dtype::F32, &[64, 64, 3]),
        (Dtype::U8, &[0, 64, 3]),
    ] {
        let frame = FrameType::values(dtype, shape).unwrap();
        assert!(codec.check(&frame).is_err(), "{shape:?}");
    }
    for shape in [&[64, 66][..], &[64, 66, 1]] {
        let frame = FrameType::values(Dtype::U16, shape).unwrap();
        assert_eq!(codec.check(&frame), Ok(()));
    }
    for bad in ["video:coding=vp8", "video:coding", "video:q=3"] {
        assert!(crate::codec(bad).is_err(), "{bad}");
    }
    let coding = VideoCoding::of_codec("video:coding=hevc");
    assert_eq!(coding, Some(VideoCoding::Hevc));
    assert_eq!(VideoCoding::of_codec("av1:q=3"), None);
}

/// All planes of the frames of a page, in the order in which they are shown.
fn planes(mut engine: Engine, page: &VideoPage<'_>, size: Size) -> Vec<u8> {
    let mut all = Vec::new();
    let mut put = |_: usize, picture: &Picture<'_>| {
        assert_eq!((picture.height, picture.width), (size.height, size.width));
        let (height, width) = (size.height, size.width);
        let chroma = match picture.layout {
            Layout::Gray => (0, 0),
            Layout::Yuv420 => (height.div_ceil(2), width.div_ceil(2)),
            Layout::Yuv422 => (height, width.div_ceil(2)),
            Layout::Yuv444 => (height, width),
        };
        for (plane, (rows, columns)) in [(height, width), chroma, chroma].into_iter().enumerate() {
            (0..rows).for_each(|y| all.extend_from_slice(picture.row(plane, y, columns)));
        }
        Ok(())
    };
    engine.decode(page.config, &page.packets, &mut put).unwrap();
    all
}

/// Every page of AV1 in `tests/golden`; to compare other videos, make such files of them.
#[test]
fn the_planes_are_those_of_ffmpegs_decoder() {
    let name = VideoCoding::Av1.ffmpeg_decoder();
    if !kino_ffmpeg::has_decoder(name) {
        println!("skipped: there is no FFmpeg with {name}; set KINOGRAPH_FFMPEG to its folder");
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().contains("video-av1") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap()
        };
        let shape: Vec<usize> = field("shape ")
            .split(',')
            .map(|side| side.parse().unwrap())
            .collect();
        let size = Size::new(&FrameType::values(Dtype::U8, &shape).unwrap()).unwrap();
        let (frames, page) = field("page ").split_once(' ').unwrap();
        let page = from_hex(page);
        let page = VideoPage::parse(&page, frames.parse().unwrap()).unwrap();
        let ours = planes(
            Engine::new(VideoCoding::Av1, page.config, size).unwrap(),
            &page,
            size,
        );
        let pixels = (size.height * size.width) as u64 * 4;
        let ffmpeg = kino_ffmpeg::Decoder::new(name, page.config, pixels).unwrap();
        assert!(
            ours == planes(Engine::Ffmpeg(ffmpeg), &page, size),
            "{}",
            path.display()
        );
        assert!(!ours.is_empty());
        (files, bytes) = (files + 1, bytes + ours.len());
    }
    assert!(files > 0);
    println!("{files} pages, {bytes} bytes of planes");
}
