//! Defects: all found before anything is written, and handled by the user's policy.

use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{Dataset, Kind};
use kino_import::{
    Action, ClockSpec, Defect, EpisodeSpec, FrameBuf, ImportError, OnDefect, ReadFrames, Source,
    SourceInfo, StreamSpec, Wanted, survey,
};

use crate::{pack_as, surveyed};

/// The frames of one of three episodes: valid, with a NaN and a gap, and unreadable.
struct Faulty {
    episode: usize,
}

const FRAMES: u64 = 40;

/// Three episodes of one stream of this kind.
fn faulty(kind: Kind) -> Source {
    let times = |gap: i64| -> Arc<[i64]> {
        let time = |frame: i64| frame * 10_000_000 + if frame > 20 { gap } else { 0 };
        (0..40).map(time).collect()
    };
    let episode = |episode: usize, id: &str, gap| {
        let frame = FrameType::values(Dtype::F32, &[1, 1]).unwrap();
        let mut stream = StreamSpec::new("x", kind, frame, FRAMES, Arc::new(Faulty { episode }));
        stream.clock = ClockSpec::Explicit(times(gap));
        EpisodeSpec {
            id: id.to_owned(),
            licence: Some("CC-BY-4.0".to_owned()),
            object: format!("/{id}"),
            streams: vec![stream],
            ..EpisodeSpec::default()
        }
    };
    let mut info = SourceInfo::new("test");
    info.defects.push(Defect {
        place: "meta".to_owned(),
        what: "names a missing episode".to_owned(),
        episode: None,
        action: Action::Skipped,
    });
    let episodes = vec![
        episode(0, "valid", 0),
        episode(1, "faulty", 300_000_000),
        episode(2, "torn", 0),
    ];
    Source::new(info, episodes)
}

impl ReadFrames for Faulty {
    fn read(&self, wanted: Wanted<'_>) -> kino_import::Result<FrameBuf> {
        let Wanted { frames, .. } = wanted;
        if self.episode == 2 {
            return Err(ImportError::Corrupt {
                file: "torn.bin".into(),
                object: "x".to_owned(),
                what: "has a wrong checksum".to_owned(),
                next: String::new(),
                source: None,
            });
        }
        let value = |frame| match (self.episode, frame) {
            (1, 7 | 9) => f32::NAN,
            _ => frame as f32,
        };
        let values = frames.flat_map(|frame| value(frame).to_le_bytes());
        Ok(FrameBuf::Values(values.collect()))
    }
}

#[test]
fn the_survey_lists_everything_in_order() {
    assert_eq!(
        surveyed(&faulty(Kind::Vector)),
        [
            "lost: meta: names a missing episode",
            "kept: :/faulty, stream `x`: has a gap of 310.0 ms after frame 20; its frames are usually 10.0 ms apart",
            "kept: :/faulty, stream `x`: contains NaN in 2 of 40 frames, first in frame 7",
            "dropped: :/torn, stream `x`: has a wrong checksum",
        ]
    );
}

#[test]
fn the_default_refuses_with_the_whole_list_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("d.kino");
    let error = pack_as(&faulty(Kind::Vector), &target, OnDefect::Error).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("the source has 4 defects; nothing was written"),
        "{text}"
    );
    for part in [
        "gap of 310.0 ms",
        "contains NaN",
        "wrong checksum",
        "--on-defect keep",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!target.exists());
}

#[test]
fn keep_imports_what_is_readable_and_drop_skips_every_defect() {
    for (on_defect, expected, dropped) in [
        (OnDefect::Keep, &["valid", "faulty"][..], 1),
        (OnDefect::DropEpisode, &["valid"][..], 3),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let packed = pack_as(&faulty(Kind::Vector), folder.path(), on_defect).unwrap();
        let dataset = Dataset::open(folder.path()).unwrap();
        let ids: Vec<_> = (0..dataset.len())
            .filter_map(|row| dataset.table().id(row))
            .collect();
        assert_eq!(ids, expected);
        let is_dropped = |defect: &&Defect| defect.action == Action::Dropped;
        assert_eq!(packed.defects.iter().filter(is_dropped).count(), dropped);
        let stored = &dataset.manifest().attributes["sources"][0]["defects"];
        assert_eq!(stored.as_array().map(Vec::len), Some(4));
        assert_eq!(
            dataset.manifest().attributes["sources"][0]["format"],
            "test"
        );
    }
}

#[test]
fn an_image_that_cannot_be_read_is_found_while_packing() {
    // The survey leaves images to the pack, and NaN in a depth image is a hole, not a defect.
    let source = faulty(Kind::Depth);
    assert_eq!(survey(&source, 1).unwrap().len(), 2);
    let folder = tempfile::tempdir().unwrap();
    let packed = pack_as(&source, folder.path(), OnDefect::Keep).unwrap();
    assert_eq!(packed.committed.episodes, 2);
    let last = packed.defects.last().unwrap();
    assert_eq!(
        (last.action, last.episode.as_deref(), last.place.as_str()),
        (Action::Dropped, Some("torn"), "torn.bin:x")
    );
}
