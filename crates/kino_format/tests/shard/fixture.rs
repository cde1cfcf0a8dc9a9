//! Shards to test with, built through the public writer.
//!
//! ```text
//! stream             frame        clock            what it tests
//! actions            float32[2]   regular 20 Hz    several pages
//! obs/joints         float64[]    regular 20 Hz    the base of the next
//! next_obs/joints    float64[]    regular 20 Hz    frame i is frame i + 1 of obs/joints; one frame is stored
//! camera             uint8[2, 3]  explicit         its pages share a page, as do its clock's
//! grip               uint8[]      explicit         the same clock as the camera's
//! task               text         regular, 1       a page that only its codec understands
//! touch              int16[3]     explicit, 0      no frames
//! nothing            float32[0]   regular 20 Hz    frames of zero bytes
//! ```

use kino_codec::{Dtype, FrameType};
use kino_format::{
    ClockRecord, EpisodeRecords, Kind, NONE, OpenShard, RegularClock, Result, Schema, Shard,
    ShardWriter, Step, StreamRecord, StreamSchema,
};

/// A clock without frames or pages.
pub(crate) const CLOCK: ClockRecord = ClockRecord {
    start_ns: 0,
    end_ns: 0,
    period_num: 0,
    period_den: 0,
    frames: 0,
    first_page: 0,
    page_count: 0,
    shared_page: NONE,
};

/// A stream without frames or pages.
pub(crate) const STREAM: StreamRecord = StreamRecord {
    stream: 0,
    clock: 0,
    frames: 0,
    own_start: 0,
    base: NONE,
    base_first: 0,
    first_page: 0,
    page_count: 0,
    shared_page: NONE,
    max_abs_error: 0.0,
    sum_squared_error: 0.0,
    raw_bytes: 0,
};

/// A raw-coded numeric stream.
pub(crate) fn values(name: &str, kind: Kind, dtype: Dtype, shape: &[usize]) -> StreamSchema {
    let frame = FrameType::values(dtype, shape).unwrap();
    StreamSchema::new(name, kind, &frame, &"raw".parse().unwrap())
}

/// The streams of [`episode`].
pub(crate) fn schema() -> Schema {
    let text = StreamSchema::new(
        "task",
        Kind::Text,
        &FrameType::Text,
        &"text".parse().unwrap(),
    );
    Schema {
        clock_codec: "raw".to_owned(),
        streams: vec![
            values("actions", Kind::Vector, Dtype::F32, &[2]),
            values("obs/joints", Kind::Vector, Dtype::F64, &[]),
            values("next_obs/joints", Kind::Vector, Dtype::F64, &[]),
            values("camera", Kind::Image, Dtype::U8, &[2, 3]),
            values("grip", Kind::Vector, Dtype::U8, &[]),
            text,
            values("touch", Kind::Vector, Dtype::I16, &[3]),
            values("nothing", Kind::Vector, Dtype::F32, &[0]),
        ],
        ..Schema::default()
    }
}

/// The clock at 20 Hz from `start_ns`.
pub(crate) fn regular(start_ns: i64, frames: u32) -> ClockRecord {
    let clock = RegularClock::from_rate_hz(20.0, start_ns, frames).unwrap();
    ClockRecord {
        start_ns,
        end_ns: clock.time_ns(frames.saturating_sub(1)),
        period_num: clock.period_num,
        period_den: clock.period_den,
        frames,
        ..CLOCK
    }
}

/// The shard that most tests read: two episodes with every kind of record, an empty one, and one more.
pub(crate) fn shard_bytes() -> Vec<u8> {
    let (mut out, schema) = (Vec::new(), schema());
    let mut writer = ShardWriter::new(&mut out);
    episode(&mut writer, &schema, 7, &mut out).unwrap();
    episode(&mut writer, &schema, 3, &mut out).unwrap();
    writer
        .end_episode(&EpisodeRecords::new(&[], &[]), &schema, &mut out)
        .unwrap();
    episode(&mut writer, &schema, 1, &mut out).unwrap();
    writer.finish(&schema, &mut out).unwrap();
    out
}

/// Writes an episode with `frames` frames at 20 Hz and about half as many images.
pub(crate) fn episode(
    writer: &mut ShardWriter,
    schema: &Schema,
    frames: u32,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut lay = |frames: std::ops::Range<u32>, per_page: u32, frame_bytes: usize| {
        let mut pages = Vec::new();
        for first in frames.clone().step_by(per_page as usize) {
            let len = per_page.min(frames.end - first) as usize * frame_bytes;
            let bytes: Vec<u8> = (0..=255).cycle().skip(first as usize).take(len).collect();
            pages.push(writer.page(&bytes, first, out)?);
        }
        Ok::<_, kino_format::FormatError>((pages.first().copied().unwrap_or(0), pages.len() as u32))
    };
    let images = frames / 2 + 1;
    let (attributes, _) = lay(0..1, 1, 21)?;
    let (times_shared, _) = lay(0..1, 1, 5)?;
    let times = lay(0..images, 2, 8)?;
    let actions = lay(0..frames, 3, 8)?;
    let joints = lay(0..frames, 4, 8)?;
    let next = lay(frames - 1..frames, 4, 8)?;
    let (camera_shared, _) = lay(0..1, 1, 11)?;
    let camera = lay(0..images, 1, 6)?;
    let grip = lay(0..images, 256, 1)?;
    let task = lay(0..1, 1, 13)?;
    let clocks = [
        regular(1_000, frames),
        ClockRecord {
            start_ns: -5,
            end_ns: if images > 1 { 70 } else { -5 },
            frames: images,
            first_page: times.0,
            page_count: times.1,
            shared_page: times_shared,
            ..CLOCK
        },
        regular(1_000, 1),
        CLOCK,
    ];
    let of = |stream, clock: usize, own: (u32, u32), frame_bytes: u64| StreamRecord {
        stream,
        clock: clock as u32,
        frames: clocks[clock].frames,
        first_page: own.0,
        page_count: own.1,
        raw_bytes: u64::from(clocks[clock].frames) * frame_bytes,
        ..STREAM
    };
    let streams = [
        of(0, 0, actions, 8),
        of(1, 0, joints, 8),
        StreamRecord {
            own_start: frames - 1,
            base: 1,
            base_first: u32::from(frames > 1),
            ..of(2, 0, next, 8)
        },
        StreamRecord {
            shared_page: camera_shared,
            max_abs_error: 2.0,
            sum_squared_error: 9.5,
            ..of(3, 1, camera, 6)
        },
        of(4, 1, grip, 1),
        of(5, 2, task, 40),
        of(6, 3, (0, 0), 6),
        of(7, 0, (0, 0), 0),
    ];
    let records = EpisodeRecords {
        clocks: &clocks,
        streams: &streams,
        attributes_page: attributes,
    };
    writer.end_episode(&records, schema, out)?;
    Ok(())
}

/// Opens a shard in memory and counts the reads.
pub(crate) fn open_counting(bytes: &[u8]) -> Result<(Shard, usize)> {
    let mut opening = OpenShard::new(bytes.len() as u64)?;
    let mut reads = 0;
    loop {
        match opening.step()? {
            Step::Need(range) => {
                reads += 1;
                assert!(reads <= 2, "a shard opens in two reads");
                opening.feed(&bytes[range.start as usize..range.end as usize]);
            }
            Step::Ready(shard) => return Ok((shard, reads)),
        }
    }
}

/// Opens a shard in memory.
pub(crate) fn open(bytes: &[u8]) -> Result<Shard> {
    open_counting(bytes).map(|(shard, _)| shard)
}

/// The bytes of `range` of `bytes`.
pub(crate) fn cut(bytes: &[u8], range: std::ops::Range<u64>) -> &[u8] {
    &bytes[range.start as usize..range.end as usize]
}

/// The index of the episode at `slot`.
pub(crate) fn index(shard: &Shard, bytes: &[u8], slot: usize) -> Result<kino_format::EpisodeIndex> {
    let range = shard.episodes()[slot].index_range();
    shard.episode_index(slot, cut(bytes, range).to_vec())
}
