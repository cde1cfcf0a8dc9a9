use kino_codec::{Dtype, VideoPage};

use super::*;

/// Packets in decode order, by the time at which they are shown; `I` and `C` are access points, `x` is never shown.
fn file(text: &str) -> (Vec<Mp4Sample>, Groups) {
    let mut points = Vec::new();
    let mut samples = Vec::new();
    for (position, word) in text.split_whitespace().enumerate() {
        let (kind, time) = word.split_at(1);
        let is_key = "IC".contains(kind);
        if is_key {
            points.push(position);
        }
        samples.push(Mp4Sample {
            offset: 10 * position as u64,
            size: 10,
            dts: position as i64,
            pts: time.parse().unwrap(),
            is_key,
            rank: (kind != "x").then_some(0),
        });
    }
    let groups = Groups::new(&samples, points).unwrap();
    (samples, groups)
}

fn frame() -> FrameType {
    FrameType::values(Dtype::U8, &[480, 640, 3]).unwrap()
}

/// The pages: `0-3: *0>0 1>3 2>1 3>2`, with each packet's position, the frame that it shows, and `*` if it starts a group.
fn pages(text: &str, frames: Range<u64>) -> Vec<String> {
    let (samples, groups) = file(text);
    let pages = groups.pages(&samples, &frame(), &frames).unwrap();
    pages.iter().map(|page| described(page, &samples)).collect()
}

fn described(page: &PagePlan, samples: &[Mp4Sample]) -> String {
    check(page, samples);
    let packets = page.packets.iter().map(|packet| {
        let start = if packet.starts_group { "*" } else { "" };
        let frame = packet.frame.map_or("-".to_owned(), |nr| nr.to_string());
        format!("{start}{}>{frame}", packet.sample)
    });
    let packets: Vec<_> = packets.collect();
    let Range { start, end } = page.frames;
    format!("{start}-{}: {}", end - 1, packets.join(" "))
}

/// The codec must accept the page.
fn check(page: &PagePlan, samples: &[Mp4Sample]) {
    let bytes = [7; 10];
    let packets = page.packets.iter().map(|packet| kino_codec::VideoPacket {
        bytes: &bytes[..samples[packet.sample].size as usize],
        frame: packet.frame,
        starts_group: packet.starts_group,
    });
    let made = VideoPage {
        config: &[],
        color: kino_codec::VideoColor::default(),
        packets: packets.collect(),
    };
    let frames = usize::try_from(page.frames.end - page.frames.start).unwrap();
    VideoPage::parse(&made.to_bytes(), frames).unwrap();
}

/// A closed group of `len` frames that begins at `start`: I P P …
fn group(start: i64, len: i64) -> String {
    let more = (start + 1..start + len).map(|time| format!(" P{time}"));
    format!("I{start}{} ", more.collect::<String>())
}

#[test]
fn short_groups_are_joined_and_long_ones_are_pages() {
    let text: String = (0..40).map(|nr| group(2 * nr, 2)).collect();
    let found = pages(&text, 0..80);
    let heads: Vec<_> = found
        .iter()
        .map(|page| page.split(':').next().unwrap())
        .collect();
    assert_eq!(heads, ["0-29", "30-59", "60-79"]);
    assert!(found[1].contains("*30>0 31>1 *32>2"), "{}", found[1]);
    let text = group(0, 50) + &group(50, 40);
    let found = pages(&text, 0..90);
    assert!(found[0].starts_with("0-49: *0>0 1>1 ") && found[1].starts_with("50-89: *50>0"));
}

#[test]
fn frames_are_shown_in_the_order_of_their_times() {
    assert_eq!(
        pages("I0 P3 B1 B2 I4 P6 B5", 0..7),
        ["0-6: *0>0 1>3 2>1 3>2 *4>4 5>6 6>5"]
    );
    // Late, with gaps, and decoded before anything is shown.
    assert_eq!(pages("I100 P170 B101", 0..3), ["0-2: *0>0 1>2 2>1"]);
}

#[test]
fn an_episode_may_begin_and_end_inside_a_group() {
    let text = "I0 P3 B1 B2 P6 B4 B5 I7 P8";
    assert_eq!(pages(text, 2..5), ["0-2: *0>- 1>1 2>- 3>0 4>- 5>2"]);
    assert_eq!(pages(text, 3..4), ["0-0: *0>- 1>0"]);
    assert_eq!(
        pages(text, 6..8),
        ["0-1: *0>- 1>- 2>- 3>- 4>0 5>- 6>- *7>1"]
    );
    assert_eq!(pages(text, 8..9), ["0-0: *7>- 8>0"]);
    assert_eq!(pages(text, 4..4), [""; 0]);
}

#[test]
fn open_groups_share_the_packet_between_them() {
    // B4 and B5 are decoded after C6 and need what is before it.
    let first: String = (0..30)
        .map(|time| format!("{}{time} ", if time == 0 { "I" } else { "P" }))
        .collect();
    let text = format!("{first} C32 B30 B31 P33");
    let found = pages(&text, 0..34);
    assert!(found[0].starts_with("0-31: *0>0 "), "{}", found[0]);
    assert!(found[0].ends_with("30>- 31>30 32>31"), "{}", found[0]);
    assert_eq!(found[1], "32-33: *30>0 33>1");
    // Inside of a page an open group is no start.
    assert_eq!(
        pages("I0 P1 C4 B2 B3 P5", 0..6),
        ["0-5: *0>0 1>1 2>4 3>2 4>3 5>5"]
    );
}

#[test]
fn what_an_edit_list_hides_is_decoded_and_not_shown() {
    assert_eq!(pages("x0 x1 I2 P3", 0..2), ["0-1: *2>0 3>1"]);
    let (mut samples, _) = file("I0 P1 P2 P3");
    samples[0].rank = None;
    let groups = Groups::new(&samples, vec![0]).unwrap();
    let pages = groups.pages(&samples, &frame(), &(0..3)).unwrap();
    assert_eq!(described(&pages[0], &samples), "0-2: *0>- 1>0 2>1 3>2");
}

#[test]
fn what_cannot_be_carried_says_why() {
    let (samples, _) = file("I0 P1");
    let error = Groups::new(&samples, Vec::new()).unwrap_err();
    assert_eq!(error, "has no frame at which decoding can begin");
    let (samples, groups) = file("P0 P1 I2");
    let error = groups.pages(&samples, &frame(), &(1..3)).unwrap_err();
    assert!(error.contains("no frame at or before frame 1"), "{error}");
    assert!(groups.pages(&samples, &frame(), &(2..3)).is_ok());
    assert!(groups.pages(&samples, &frame(), &(2..4)).is_err());
    let (samples, groups) = file(&group(0, 2400));
    assert!(groups.pages(&samples, &frame(), &(0..2300)).is_ok());
    let error = groups.pages(&samples, &frame(), &(0..2400)).unwrap_err();
    assert!(error.contains("a group of 2400 frames"), "{error}");
    assert!(error.contains("`ffmpeg -g 2330`"), "{error}");
    // A short episode of it is fine, wherever it begins.
    assert!(groups.pages(&samples, &frame(), &(100..120)).is_ok());
}
