//! What is written is read back, however the bytes arrive and however the writer's buffer is drained.

use kino_codec::Dtype;
use kino_format::{
    EpisodeRecords, FormatError, Kind, OpenShard, Schema, ShardWriter, Step, StreamRecord,
};

use crate::fixture::{
    CLOCK, STREAM, cut, episode, index, open, open_counting, regular, schema, shard_bytes, values,
};

#[test]
fn every_record_round_trips() {
    let bytes = shard_bytes();
    let (shard, reads) = open_counting(&bytes).unwrap();
    assert_eq!(reads, 1, "footer, directory and schema come in one read");
    assert_eq!(**shard.schema(), schema());
    assert_eq!(shard.episodes().len(), 4);
    assert_eq!(
        shard.tail_range().start,
        shard.episodes()[3].range().end,
        "the schema follows the last episode"
    );
    let first = index(&shard, &bytes, 0).unwrap();
    assert_eq!((first.clock_count(), first.stream_count()), (4, 8));
    assert_eq!(first.clock(0), regular(1_000, 7));
    assert_eq!(first.clock(1).regular(), None);
    assert_eq!(first.stream(3).max_abs_error, 2.0);
    assert_eq!(first.attributes(), Some(first.page(0)));
    let empty = index(&shard, &bytes, 2).unwrap();
    assert_eq!((empty.page_count(), empty.attributes()), (0, None));
}

#[test]
fn a_page_is_found_where_it_was_written() {
    let bytes = shard_bytes();
    let shard = open(&bytes).unwrap();
    for slot in [0, 1, 3] {
        let index = index(&shard, &bytes, slot).unwrap();
        for page in 0..index.page_count() as u32 {
            let record = index.page(page);
            let start = shard.episodes()[slot].start + record.offset();
            let page = cut(&bytes, start..start + u64::from(record.len));
            assert_eq!(kino_format::page_checksum(page), record.crc);
        }
    }
}

#[test]
fn shared_frames_resolve_to_the_base() {
    let bytes = shard_bytes();
    let shard = open(&bytes).unwrap();
    let index = index(&shard, &bytes, 0).unwrap();
    let segments: Vec<_> = index
        .segments(2, 0..7)
        .map(|segment| (segment.stream, segment.frames))
        .collect();
    assert_eq!(segments, [(1, 1..7), (2, 6..7)]);
    let segments: Vec<_> = index
        .segments(2, 2..5)
        .map(|segment| (segment.stream, segment.frames))
        .collect();
    assert_eq!(segments, [(1, 3..6)]);
}

#[test]
fn frames_past_the_end_of_a_stream_are_in_no_page() {
    let bytes = shard_bytes();
    let shard = open(&bytes).unwrap();
    let index = index(&shard, &bytes, 0).unwrap();
    for stream in 0..index.stream_count() {
        let frames = index.stream(stream).frames;
        let all: Vec<_> = index.segments(stream, 0..frames).collect();
        assert_eq!(index.segments(stream, 0..u32::MAX).collect::<Vec<_>>(), all);
        assert_eq!(index.segments(stream, frames..frames + 9).count(), 0);
        assert_eq!(index.segments(stream, u32::MAX..u32::MAX).count(), 0);
        #[expect(
            clippy::reversed_empty_ranges,
            reason = "a caller's mistake must not panic"
        )]
        let backwards = 5..2;
        assert_eq!(index.segments(stream, backwards).count(), 0);
    }
}

#[test]
fn empty_frames_and_empty_streams_have_no_pages() {
    let bytes = shard_bytes();
    let shard = open(&bytes).unwrap();
    let index = index(&shard, &bytes, 0).unwrap();
    assert_eq!(index.segments(6, 0..1).count(), 0);
    let segments: Vec<_> = index.segments(7, 0..7).collect();
    assert_eq!(
        (segments.len(), index.pages_of(&segments[0]).count()),
        (1, 0)
    );
}

#[test]
fn a_large_directory_takes_a_second_read() {
    let (mut out, schema) = (Vec::new(), schema());
    let mut writer = ShardWriter::new(&mut out);
    for _ in 0..2_000 {
        writer
            .end_episode(&EpisodeRecords::new(&[], &[]), &schema, &mut out)
            .unwrap();
    }
    episode(&mut writer, &schema, 3, &mut out).unwrap();
    writer.finish(&schema, &mut out).unwrap();
    let (shard, reads) = open_counting(&out).unwrap();
    assert_eq!((reads, shard.episodes().len()), (2, 2_001));
    assert!(index(&shard, &out, 2_000).is_ok());
}

#[test]
fn a_read_of_the_wrong_length_is_an_error() {
    let bytes = shard_bytes();
    for (answer, expected) in [
        (&bytes[1..], "truncated"),
        (&[][..], "truncated"),
        (&[bytes.as_slice(), &[0]].concat()[..], "more than"),
    ] {
        let mut opening = OpenShard::new(bytes.len() as u64).unwrap();
        assert!(
            matches!(opening.step(), Ok(Step::Need(range)) if range == (0..bytes.len() as u64))
        );
        opening.feed(answer);
        let error = opening.step().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_drained_buffer_gives_the_same_shard() {
    let (mut file, mut out, schema) = (Vec::new(), Vec::new(), schema());
    let mut writer = ShardWriter::new(&mut out);
    for frames in [7, 3] {
        file.append(&mut out);
        episode(&mut writer, &schema, frames, &mut out).unwrap();
    }
    file.append(&mut out);
    writer
        .end_episode(&EpisodeRecords::new(&[], &[]), &schema, &mut out)
        .unwrap();
    episode(&mut writer, &schema, 1, &mut out).unwrap();
    file.append(&mut out);
    let position = writer.position();
    assert_eq!(position, file.len() as u64);
    let len = writer.finish(&schema, &mut out).unwrap();
    file.append(&mut out);
    assert_eq!(len, file.len() as u64);
    assert!(file == shard_bytes());
}

#[test]
fn the_same_episode_has_the_same_hash_in_any_shard() {
    let (mut out, schema) = (Vec::new(), schema());
    let mut writer = ShardWriter::new(&mut out);
    episode(&mut writer, &schema, 5, &mut out).unwrap();
    episode(&mut writer, &schema, 3, &mut out).unwrap();
    writer.finish(&schema, &mut out).unwrap();
    let (here, bytes) = (open(&out).unwrap(), shard_bytes());
    let there = open(&bytes).unwrap();
    assert_eq!(here.episodes()[1].hash, there.episodes()[1].hash);
    let range = here.episodes()[1].range();
    assert_eq!(
        *blake3::hash(cut(&out, range)).as_bytes(),
        there.episodes()[1].hash
    );
}

#[test]
fn a_page_may_be_empty() {
    let schema = Schema {
        clock_codec: "raw".to_owned(),
        streams: vec![values("constant", Kind::Vector, Dtype::F32, &[1])],
        ..Schema::default()
    };
    let mut out = Vec::new();
    let mut writer = ShardWriter::new(&mut out);
    writer.page(&[], 0, &mut out).unwrap();
    writer.page(&[], 2, &mut out).unwrap();
    let stream = StreamRecord {
        frames: 4,
        page_count: 2,
        raw_bytes: 16,
        ..STREAM
    };
    writer
        .end_episode(
            &EpisodeRecords::new(&[regular(0, 4)], &[stream]),
            &schema,
            &mut out,
        )
        .unwrap();
    writer.finish(&schema, &mut out).unwrap();
    let shard = open(&out).unwrap();
    let index = index(&shard, &out, 0).unwrap();
    let segment = index.segments(0, 1..4).next().unwrap();
    let ranges: Vec<_> = index.pages_of(&segment).map(|slice| slice.range).collect();
    assert_eq!(ranges, [1..2, 0..2]);
}

#[test]
fn a_schema_may_grow_between_episodes_but_not_change() {
    let (mut out, full) = (Vec::new(), schema());
    let mut writer = ShardWriter::new(&mut out);
    let mut growing = full.clone();
    growing
        .streams
        .push(values("late", Kind::Vector, Dtype::F32, &[2]));
    episode(&mut writer, &full, 3, &mut out).unwrap();
    episode(&mut writer, &growing, 3, &mut out).unwrap();
    let mut changed = growing.clone();
    changed.streams.swap(0, 1);
    let error = writer
        .end_episode(&EpisodeRecords::new(&[], &[]), &changed, &mut out)
        .unwrap_err();
    assert!(matches!(error, FormatError::Limit { .. }), "{error}");
    let error = writer.finish(&full, &mut out).unwrap_err();
    assert!(error.to_string().contains("schema"), "{error}");
}

#[test]
fn an_episode_cannot_end_with_a_schema_that_readers_reject() {
    let (mut out, mut twice) = (Vec::new(), schema());
    twice
        .streams
        .push(values("camera", Kind::Image, Dtype::U8, &[9]));
    let mut writer = ShardWriter::new(&mut out);
    let error = episode(&mut writer, &twice, 3, &mut out).unwrap_err();
    assert!(error.to_string().contains("`camera`"), "{error}");
}

#[test]
fn a_refused_episode_leaves_the_writer_unchanged() {
    let (mut out, schema) = (Vec::new(), schema());
    let mut writer = ShardWriter::new(&mut out);
    episode(&mut writer, &schema, 7, &mut out).unwrap();
    let before = (writer.position(), out.len());
    let lost = [StreamRecord { clock: 9, ..STREAM }];
    assert!(
        writer
            .end_episode(&EpisodeRecords::new(&[CLOCK], &lost), &schema, &mut out)
            .is_err()
    );
    assert_eq!((writer.position(), out.len()), before);
    episode(&mut writer, &schema, 3, &mut out).unwrap();
    writer
        .end_episode(&EpisodeRecords::new(&[], &[]), &schema, &mut out)
        .unwrap();
    episode(&mut writer, &schema, 1, &mut out).unwrap();
    writer.finish(&schema, &mut out).unwrap();
    assert!(out == shard_bytes());
}

#[test]
fn an_abandoned_episode_leaves_nothing_behind() {
    let (mut out, schema) = (Vec::new(), schema());
    let mut writer = ShardWriter::new(&mut out);
    episode(&mut writer, &schema, 7, &mut out).unwrap();
    episode(&mut writer, &schema, 3, &mut out).unwrap();
    writer.page(b"half an episode", 0, &mut out).unwrap();
    writer.abandon_episode();
    out.truncate(writer.position() as usize);
    writer
        .end_episode(&EpisodeRecords::new(&[], &[]), &schema, &mut out)
        .unwrap();
    episode(&mut writer, &schema, 1, &mut out).unwrap();
    writer.finish(&schema, &mut out).unwrap();
    assert!(out == shard_bytes());
}

#[test]
fn pages_without_an_episode_cannot_be_finished() {
    let mut out = Vec::new();
    let mut writer = ShardWriter::new(&mut out);
    writer.page(b"frames", 0, &mut out).unwrap();
    let error = writer.finish(&schema(), &mut out).unwrap_err();
    assert!(error.to_string().contains("episode"), "{error}");
}

#[test]
fn a_slot_past_the_last_has_no_index() {
    let shard = open(&shard_bytes()).unwrap();
    assert!(shard.episode_index(4, Vec::new()).is_err());
    assert!(shard.episode_index(0, Vec::new()).is_err());
}
