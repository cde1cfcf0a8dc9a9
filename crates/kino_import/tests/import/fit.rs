//! Fitting: what a dataset refuses costs only itself, and is known before anything is written.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{Dataset, Kind, Start};
use kino_import::{
    Action, ClockSpec, EpisodeSpec, FrameBuf, ImportError, OnDefect, PackOptions, ReadFrames,
    Source, SourceInfo, StreamSpec, Wanted, pack,
};
use serde_json::json;

use crate::{pack_as, surveyed};

const FRAMES: u64 = 6;

/// Frames whose value is their number; `stream` is added tenfold, so that mixed-up streams are detected.
struct Odd {
    stream: u64,
    fails: Fails,
}

/// The error of reading the episode with this id.
type Fails = fn(&str) -> Option<ImportError>;

impl ReadFrames for Odd {
    fn read(&self, wanted: Wanted<'_>) -> kino_import::Result<FrameBuf> {
        let Wanted {
            episode,
            stream: spec,
            frames,
        } = wanted;
        if let Some(error) = (self.fails)(&episode.id) {
            return Err(error);
        }
        let size = spec.frame.as_values().unwrap().frame_bytes();
        let value = |frame: u64| {
            let number = (frame + 10 * self.stream).to_le_bytes();
            number.into_iter().cycle().take(size)
        };
        Ok(FrameBuf::Values(frames.flat_map(value).collect()))
    }
}

fn stream(name: &str, dtype: Dtype) -> StreamSpec {
    let frame = FrameType::values(dtype, &[]).unwrap();
    let reader = Odd {
        stream: 0,
        fails: |_| None,
    };
    let mut stream = StreamSpec::new(name, Kind::Vector, frame, FRAMES, Arc::new(reader));
    stream.clock = ClockSpec::Regular { rate_hz: 10.0 };
    stream
}

fn odd(episodes: &[(&str, Vec<StreamSpec>)]) -> Source {
    failing(episodes, |_| None)
}

fn failing(episodes: &[(&str, Vec<StreamSpec>)], fails: Fails) -> Source {
    Source::new(SourceInfo::new("test"), specs(episodes, fails))
}

fn specs(episodes: &[(&str, Vec<StreamSpec>)], fails: Fails) -> Vec<EpisodeSpec> {
    let episode = |(id, streams): &(&str, Vec<StreamSpec>)| {
        let mut streams = streams.clone();
        for (spec, stream) in streams.iter_mut().zip(0..) {
            spec.reader = Arc::new(Odd { stream, fails });
        }
        EpisodeSpec {
            id: (*id).to_owned(),
            object: format!("/{id}"),
            streams,
            ..EpisodeSpec::default()
        }
    };
    episodes.iter().map(episode).collect()
}

/// The ids, and the streams of each with their first values.
fn contents(target: &Path) -> Vec<(String, Vec<(String, u8)>)> {
    let dataset = Dataset::open(target).unwrap();
    let episode = |row| {
        let episode = dataset.episode(row).unwrap();
        let streams = episode.streams().map(|schema| {
            let stream = episode.stream(&schema.name).unwrap();
            (schema.name.clone(), stream.read(0..1).unwrap()[0])
        });
        let mut streams: Vec<_> = streams.collect();
        streams.sort();
        (dataset.table().id(row).unwrap().to_owned(), streams)
    };
    (0..dataset.len()).map(episode).collect()
}

#[test]
fn invalid_names_and_ids_are_replaced_consistently() {
    let streams = || {
        vec![
            stream("obs/..", Dtype::I64),
            stream("obs/_", Dtype::I64),
            stream("a\nb", Dtype::U8),
        ]
    };
    let long = "x".repeat(300);
    let source = odd(&[
        ("one\n", streams()),
        (&long, streams()),
        ("one_", streams()),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("d.kino");
    let error = pack_as(&source, &target, OnDefect::Error).unwrap_err();
    assert_eq!(error.defects().len(), 8, "{error}");
    assert!(!target.exists(), "nothing is written before all is checked");
    let packed = pack_as(&source, &target, OnDefect::Keep).unwrap();
    assert!(
        packed
            .defects
            .iter()
            .all(|defect| defect.action == Action::Kept)
    );
    let names = [("a_b", 20), ("obs/_", 10), ("obs/__2", 0)];
    let names: Vec<_> = names.map(|(name, first)| (name.to_owned(), first)).into();
    let ids = ["one__2".to_owned(), "x".repeat(255), "one_".to_owned()];
    let expected: Vec<_> = ids.map(|id| (id, names.clone())).into();
    assert_eq!(contents(&target), expected);
}

#[test]
fn a_stream_whose_type_differs_from_most_episodes_is_skipped() {
    let usual = || vec![stream("a", Dtype::I64), stream("b", Dtype::U8)];
    let other = vec![stream("a", Dtype::F64), stream("b", Dtype::U8)];
    let source = odd(&[("0", other), ("1", usual()), ("2", usual())]);
    assert_eq!(
        surveyed(&source),
        [
            "lost: :/0, stream `a`: is vector float64[] here but vector int64[] in 2 other episodes; a stream must \
             have one type in all episodes"
        ]
    );
    let folder = tempfile::tempdir().unwrap();
    pack_as(&source, folder.path(), OnDefect::Keep).unwrap();
    let contents = contents(folder.path());
    // The stream after the skipped one has its own values.
    assert_eq!(contents[0].1, [("b".to_owned(), 10)]);
    assert_eq!(contents[1].1.len(), 2);
    // The existing type counts, not the majority of what is appended.
    let more = odd(&[("3", vec![stream("a", Dtype::F64), stream("b", Dtype::U8)])]);
    let append = || PackOptions {
        start: Start::Append,
        on_defect: OnDefect::Keep,
        ..PackOptions::default()
    };
    let go = &mut |_| ControlFlow::Continue(());
    let packed = pack(&more, folder.path(), append(), go).unwrap();
    assert!(packed.defects[0].what.contains("in the dataset"));
    let error = pack(&more, folder.path(), append(), go).unwrap_err();
    assert!(
        error.to_string().contains("`3` is already in the dataset"),
        "{error}"
    );
}

#[test]
fn an_episode_beyond_the_limits_is_dropped() {
    let mut fast = stream("a", Dtype::I64);
    fast.clock = ClockSpec::Regular { rate_hz: 1e12 };
    let many = (0..5000).map(|number| stream(&number.to_string(), Dtype::U8));
    let mut back = stream("a", Dtype::I64);
    back.clock = ClockSpec::Explicit(vec![0, 1, 2, 1, 3, 4].into());
    let mut long = stream("a", Dtype::I64);
    long.frames = 1 << 40;
    let mut huge = stream("a", Dtype::I64);
    huge.frame = FrameType::values(Dtype::U8, &[100 << 20]).unwrap();
    let source = odd(&[
        ("fast", vec![fast]),
        ("many", many.collect()),
        ("back", vec![back]),
        ("long", vec![long]),
        ("huge", vec![huge]),
        (
            "twice",
            vec![stream("a", Dtype::I64), stream("a", Dtype::I64)],
        ),
        ("nothing", Vec::new()),
        ("good", vec![stream("a", Dtype::I64)]),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let packed = pack_as(&source, folder.path(), OnDefect::Keep).unwrap();
    let ids: Vec<_> = contents(folder.path())
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(ids, ["twice", "good"]);
    let text = packed.defects.iter().map(ToString::to_string);
    let text = text.collect::<Vec<_>>().join("\n");
    for part in [
        "rate 1000000000000 Hz is outside",
        "dropped: :/many: has 5000 streams; the limit is 4096 per episode",
        "lost: :/back, stream `a`: goes back in time",
        "lost: :/long, stream `a`: has 1099511627776 frames",
        "lost: :/huge, stream `a`: has frames of 104857600 bytes",
        "lost: :/twice, stream `a`: appears twice",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn attributes_beyond_the_limit_are_skipped() {
    let mut episodes = specs(&[("0", vec![stream("a", Dtype::I64)])], |_| None);
    let episode = &mut episodes[0];
    episode
        .attributes
        .insert("big".to_owned(), json!("x".repeat(2 << 20)));
    episode.attributes.insert("small".to_owned(), json!(7));
    episode.task = Some("t".repeat(70_000));
    episode.splits = (0..300).map(|number| number.to_string()).collect();
    let source = Source::new(SourceInfo::new("test"), episodes);
    let folder = tempfile::tempdir().unwrap();
    let packed = pack_as(&source, folder.path(), OnDefect::Keep).unwrap();
    let lost = packed.defects.iter().filter(|defect| defect.is_lost());
    assert_eq!(lost.count(), 3, "{:?}", packed.defects);
    let dataset = Dataset::open(folder.path()).unwrap();
    let attributes = dataset.episode(0).unwrap().read_attributes().unwrap();
    assert_eq!(json!(attributes), json!({"small": 7}));
    assert_eq!(dataset.table().rows().unwrap()[0].splits.len(), 256);
}

#[test]
fn any_error_of_one_episode_costs_that_episode() {
    let errors: [Fails; 3] = [
        |episode| {
            (episode == "1").then(|| ImportError::Unsupported {
                file: "f".into(),
                object: "x".to_owned(),
                what: "is odd".to_owned(),
                next: String::new(),
                source: None,
            })
        },
        |episode| {
            (episode == "1").then(|| ImportError::Io {
                path: "f".into(),
                source: std::io::Error::other("is odd"),
            })
        },
        |episode| {
            (episode == "1").then(|| ImportError::InvalidArgument {
                what: "is odd".to_owned(),
            })
        },
    ];
    for fails in errors {
        // Images are not checked before they are packed.
        for kind in [Kind::Vector, Kind::Image] {
            let streams = || {
                let mut stream = stream("a", Dtype::U8);
                stream.kind = kind;
                stream.frame = FrameType::values(Dtype::U8, &[2, 2, 3]).unwrap();
                vec![stream]
            };
            let episodes = [("0", streams()), ("1", streams()), ("2", streams())];
            let source = failing(&episodes, fails);
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("d.kino");
            let error = pack_as(&source, &target, OnDefect::Error).unwrap_err();
            let shown = match &error {
                ImportError::Episode { episode, source } => format!("{episode} {source:?}"),
                error => error.to_string(),
            };
            assert!(shown.contains('1') && shown.contains("is odd"), "{shown}");
            assert!(!target.exists(), "nothing to resume is left");
            let packed = pack_as(&source, &target, OnDefect::Keep).unwrap();
            assert_eq!(packed.committed.episodes, 2);
            assert_eq!(packed.defects.len(), 1);
            assert_eq!(packed.defects[0].episode.as_deref(), Some("1"));
        }
    }
}

#[test]
fn when_no_episode_is_left_the_error_says_why_and_nothing_is_left_behind() {
    let episodes = [
        ("0", vec![stream("a", Dtype::I64)]),
        ("1", vec![stream("a", Dtype::I64)]),
    ];
    let source = failing(&episodes, |episode| {
        Some(ImportError::InvalidArgument {
            what: format!("episode {episode} is odd"),
        })
    });
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("d.kino");
    let error = pack_as(&source, &target, OnDefect::Keep).unwrap_err();
    assert!(matches!(error, ImportError::NothingLeft { .. }));
    for part in [
        "no episode can be imported",
        "episode 0 is odd",
        "episode 1 is odd",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!target.exists());
}
