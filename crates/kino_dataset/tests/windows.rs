//! Samples of a multi-rate dataset, compared with what a naive program computes from whole streams.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small numbers made here"
)]

mod common;
#[path = "windows/naive.rs"]
mod naive;
#[path = "windows/recording.rs"]
mod recording;

use kino_dataset::{
    Anchor, Array, At, CountSource, Dataset, Include, LeRobot, MaskDialect, NextObs, Out, Pad,
    Rate, Request, Resolve, Robomimic, SampleFrames, Samples, Selection, Stack, Window,
    shared_anchor,
};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use recording::{open_even, open_many, open_mixed};

const NEAREST: Resolve = Resolve::Nearest {
    max_staleness_ns: None,
};

/// Steps `first` to `end − 1` of a stream; past the end of the episode stands what `after` says.
fn steps(stream: &str, steps: std::ops::Range<i32>, after: Pad) -> Window {
    Window {
        after,
        ..Window::new(stream, At::Steps(steps.collect()))
    }
}

/// Every frame of these streams, one sample per episode.
fn whole_episode(streams: &[&str]) -> Request {
    let windows = streams.iter().map(|stream| Window::new(stream, At::All));
    Request {
        masks: MaskDialect::Off,
        ..request(Anchor::Episode, windows.collect())
    }
}

fn request(anchor: Anchor, windows: Vec<Window>) -> Request {
    Request::new(anchor, windows)
}

fn stream(name: &str) -> Anchor {
    Anchor::Stream(name.to_owned())
}

fn bind(dataset: &Dataset, request: &Request) -> Samples {
    Samples::bind(dataset, request.clone(), &Selection::default()).unwrap()
}

/// Compares every sample of a request with the naive ones.
fn check(dataset: &Dataset, request: &Request) -> Result<(), String> {
    let expected = naive::samples(dataset, request);
    let bound = Samples::bind(dataset, request.clone(), &Selection::default());
    let windows = match bound {
        Ok(windows) => windows,
        Err(error) if expected.is_empty() => {
            let text = error.to_string();
            return if text.contains("no sample is left") {
                Ok(())
            } else {
                Err(text)
            };
        }
        Err(error) => return Err(error.to_string()),
    };
    if windows.len() != expected.len() as u64 {
        let len = windows.len();
        return Err(format!("{len} samples instead of {}", expected.len()));
    }
    // Every anchor is counted, a part of them is read.
    let step = (expected.len() / 12).max(1);
    for (index, expected) in expected.iter().enumerate() {
        let located = windows.locate(index as u64).unwrap();
        let at_edge = index < 3 || index + 3 >= windows.len() as usize;
        if index % step != 0 && !at_edge {
            continue;
        }
        let sample = windows.read(index as u64).unwrap();
        if sample != *expected {
            return Err(format!(
                "sample {index} at {located:?}:\n{sample:?}\ninstead of\n{expected:?}"
            ));
        }
    }
    assert!(windows.locate(windows.len()).is_err());
    assert!(windows.read(windows.len()).is_err());
    Ok(())
}

fn offsets() -> impl Strategy<Value = At> {
    prop_oneof![
        proptest::collection::vec(-7..9_i32, 1..5).prop_map(At::Steps),
        proptest::collection::vec(-200_000_000..250_000_000_i64, 1..5).prop_map(At::Times),
        // Multiples of a rounded period.
        proptest::collection::vec((-6..6_i64).prop_map(|idx| idx * 33_333_333), 1..4)
            .prop_map(At::Times),
        Just(At::All),
        Just(At::Last),
        (0_u32..40).prop_map(At::FromEnd),
    ]
}

fn windows_of(streams: &'static [&'static str]) -> impl Strategy<Value = Window> {
    let limit = prop_oneof![Just(None), (0..120_000_000_u64).prop_map(Some)];
    let pad = || prop_oneof![Just(Pad::Edge), Just(Pad::Zero), Just(Pad::Drop)];
    let latency = prop_oneof![Just(0), -40_000_000..40_000_000_i64];
    (
        proptest::sample::select(streams),
        offsets(),
        (0..5, limit),
        (pad(), pad()),
        latency,
        any::<bool>(),
    )
        .prop_map(
            |(name, at, (which, max_staleness_ns), pads, latency_ns, single)| {
                let is_steps = matches!(at, At::Steps(_));
                let blends = !is_steps && matches!(name, "joints" | "force" | "pose");
                let resolve = match which {
                    0 => Resolve::Hold { max_staleness_ns },
                    1 if blends => Resolve::Linear { max_staleness_ns },
                    3 => Resolve::Auto { max_staleness_ns },
                    2 if blends && name == "pose" => Resolve::Slerp { max_staleness_ns },
                    _ => Resolve::Nearest { max_staleness_ns },
                };
                let mut window = Window {
                    resolve,
                    latency_ns,
                    before: pads.0,
                    after: pads.1,
                    ..Window::new(name, at)
                };
                if matches!(window.at, At::All | At::Last | At::FromEnd(_)) {
                    window.latency_ns = 0;
                }
                if single && window.len() == Some(1) {
                    window.stack = Stack::Single;
                }
                window
            },
        )
}

const STREAMS: &[&str] = &["actions", "camera", "joints", "force", "pose", "words"];

fn anchors() -> impl Strategy<Value = Anchor> {
    let thirty = Rate {
        num: 30_000,
        den: 1001,
    };
    prop_oneof![
        Just(stream("actions")),
        Just(stream("camera")),
        Just(stream("force")),
        Just(Anchor::Rate(Rate { num: 10, den: 1 })),
        Just(Anchor::Rate(thirty)),
        Just(Anchor::Episode),
    ]
}

fn requests(
    anchors: impl Strategy<Value = Anchor>,
    streams: &'static [&'static str],
) -> impl Strategy<Value = Request> {
    let windows = proptest::collection::vec(windows_of(streams), 1..4);
    let all = vec![
        Include::Sample,
        Include::Task,
        Include::Frame,
        Include::Episode,
    ];
    let include = proptest::sample::subsequence(all, 0..=4);
    (anchors, windows, (0..4_u32, 0..4_u32), include).prop_map(
        |(anchor, mut windows, (skip_first, skip_last), include)| {
            for (idx, window) in windows.iter_mut().enumerate() {
                window.key = format!("{}-{idx}", window.stream);
                if anchor == Anchor::Episode && matches!(window.at, At::Steps(_)) {
                    window.at = At::Times(vec![0]);
                }
            }
            Request {
                skip_first,
                skip_last,
                include,
                ..request(anchor, windows)
            }
        },
    )
}

fn check_many(dataset: &Dataset, requests: impl Strategy<Value = Request>) {
    proptest!(ProptestConfig::with_cases(250), |(request in requests)| {
        if let Err(what) = check(dataset, &request) {
            return Err(proptest::test_runner::TestCaseError::fail(what));
        }
    });
}

#[test]
fn every_request_gives_what_a_naive_program_computes() {
    let (_folder, dataset) = open_mixed();
    check_many(&dataset, requests(anchors(), STREAMS));
}

#[test]
fn so_does_every_request_that_the_table_counts() {
    let (_folder, dataset) = open_even();
    let anchors = prop_oneof![Just(stream("actions")), Just(Anchor::Episode)];
    check_many(&dataset, requests(anchors, &["actions", "obs/state"]));
}

#[test]
fn a_request_on_one_clock_is_counted_by_the_table_alone() {
    let (_folder, dataset) = open_even();
    let chunk = Window {
        before: Pad::Drop,
        ..steps("actions", 0..4, Pad::Drop)
    };
    let request = Request {
        skip_first: 1,
        ..request(
            stream("actions"),
            vec![chunk, steps("obs/state", -1..1, Pad::Edge)],
        )
    };
    let windows = bind(&dataset, &request);
    assert_eq!(windows.source(), CountSource::Table);
    // 9, 12 and 4 frames; three are lost at the end, one at the start.
    assert_eq!(windows.counts(), [5, 8, 0]);
    assert_eq!(windows.sizes(), [9 * 40, 12 * 40, 4 * 40]);
    check(&dataset, &request).unwrap();
    // The same through the episodes: `obs/state` may have another clock for all that the table knows.
    let mut surveyed = request;
    surveyed.windows[1].before = Pad::Drop;
    let again = bind(&dataset, &surveyed);
    assert_eq!(again.source(), CountSource::Episodes);
    assert_eq!(
        (again.counts(), again.sizes()),
        (windows.counts(), windows.sizes())
    );
    assert_ne!(again.id().unwrap(), windows.id().unwrap());
    assert_eq!(
        windows.id().unwrap(),
        bind(&dataset, windows.request()).id().unwrap()
    );
}

#[test]
fn counting_by_the_table_opens_no_shard() {
    let (folder, dataset) = open_even();
    std::fs::remove_dir_all(folder.path().join("a.kino/shards")).unwrap();
    let request = request(stream("actions"), vec![steps("actions", 0..4, Pad::Edge)]);
    assert_eq!(bind(&dataset, &request).len(), 25);
    let mut whole = whole_episode(&["actions", "obs/state"]);
    assert_eq!(bind(&dataset, &whole).counts(), [1, 1, 1]);
    whole.anchor = Anchor::Rate(Rate { num: 20, den: 1 });
    assert!(Samples::bind(&dataset, whole, &Selection::default()).is_err());
}

#[test]
fn planning_uses_the_same_buffers_again() {
    let (_folder, dataset) = open_mixed();
    let pose = Window {
        resolve: Resolve::Linear {
            max_staleness_ns: None,
        },
        ..Window::new("pose", At::Times(vec![-50_000_000, 0]))
    };
    let windows = bind(
        &dataset,
        &request(
            stream("actions"),
            vec![pose, steps("camera", -4..1, Pad::Edge)],
        ),
    );
    let episode = windows.episode(0).unwrap();
    let mut plan = SampleFrames::default();
    episode.plan(0, &mut plan).unwrap();
    let places = |plan: &SampleFrames| -> Vec<_> {
        let parts = plan.windows.iter();
        parts
            .map(|part| {
                (
                    part.frames.as_ptr(),
                    part.other.as_ptr(),
                    part.state.as_ptr(),
                )
            })
            .collect()
    };
    let before = places(&plan);
    for sample in 0..episode.len() {
        episode.plan(sample, &mut plan).unwrap();
        assert_eq!((plan.row, plan.anchor), (0, sample));
    }
    assert_eq!(places(&plan), before);
    let error = episode.plan(episode.len(), &mut plan).unwrap_err();
    assert!(error.to_string().contains("has no sample 17"), "{error}");
}

#[test]
fn many_episodes_are_surveyed_on_all_cores_and_all_without_a_stream_are_named() {
    let (_folder, dataset) = open_many();
    let chunk = |name: &str| request(stream("x"), vec![steps(name, 0..3, Pad::Drop)]);
    let all = bind(&dataset, &chunk("y"));
    assert_eq!(all.source(), CountSource::Episodes);
    let expected: Vec<u32> = (0..1200).map(|number| number % 5).collect();
    assert_eq!(all.counts(), expected);
    for index in 0..all.len() {
        let located = all.locate(index).unwrap();
        assert!(
            located.sample < all.counts()[located.position],
            "{located:?}"
        );
    }
    let error = Samples::bind(&dataset, chunk("z"), &Selection::default()).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "2 episodes have no frames of stream `z`: `ep-0700`, `ep-1150`; skip them with the filter `has(\"z\")`"
        ),
        "{error}"
    );
    let with_z = Selection {
        filter: Some("has(\"z\")".to_owned()),
        ..Selection::default()
    };
    let found = Samples::bind(&dataset, chunk("z"), &with_z).unwrap();
    let rows: Vec<u32> = (0..1200).filter(|row| ![700, 1150].contains(row)).collect();
    assert_eq!(found.episodes(), rows);
}

#[test]
fn an_episode_that_was_just_opened_is_not_opened_again_and_the_oldest_is_let_go() {
    let (_folder, dataset) = open_many();
    let chunk = request(stream("x"), vec![steps("x", 0..3, Pad::Edge)]);
    let windows = bind(&dataset, &chunk);
    let first = windows.opened(0).unwrap();
    for position in (0..256).rev() {
        windows.opened(position).unwrap();
    }
    assert!(std::sync::Arc::ptr_eq(&first, &windows.opened(0).unwrap()));
    windows.opened(256).unwrap();
    assert!(!std::sync::Arc::ptr_eq(&first, &windows.opened(0).unwrap()));
    assert!(windows.opened(1200).is_err());
}

#[test]
fn threads_that_open_episodes_side_by_side_read_the_same_samples() {
    let (_folder, dataset) = open_mixed();
    let windows = bind(
        &dataset,
        &request(stream("actions"), vec![steps("camera", -1..1, Pad::Edge)]),
    );
    let alone: Vec<_> = (0..windows.len())
        .map(|index| bind(&dataset, windows.request()).read(index).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (index, expected) in (0..).zip(&alone) {
                    assert_eq!(&windows.read(index).unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn no_number_in_a_request_makes_planning_panic() {
    let (_folder, dataset) = open_mixed();
    let times = At::Times(vec![i64::MIN, -1, 0, 1, i64::MAX]);
    let steps = At::Steps(vec![i32::MIN, -1, 0, 1, i32::MAX]);
    for at in [times, steps] {
        for (latency_ns, limit) in [(i64::MIN, Some(u64::MAX)), (i64::MAX, Some(0)), (0, None)] {
            let window = |name: &str, resolve| Window {
                key: format!("{name}-{resolve:?}"),
                latency_ns,
                resolve,
                ..Window::new(name, at.clone())
            };
            let max_staleness_ns = limit;
            let mut windows = vec![
                window("force", Resolve::Hold { max_staleness_ns }),
                window("camera", Resolve::Nearest { max_staleness_ns }),
            ];
            if matches!(at, At::Times(_)) {
                windows.push(window("pose", Resolve::Slerp { max_staleness_ns }));
                windows.push(window("joints", Resolve::Linear { max_staleness_ns }));
            }
            let fields = windows.len();
            for anchor in [stream("force"), Anchor::Rate(Rate { num: 7, den: 3 })] {
                let windows = bind(&dataset, &request(anchor, windows.clone()));
                for index in 0..windows.len() {
                    assert_eq!(windows.read(index).unwrap().fields.len(), fields);
                }
            }
        }
    }
}

#[test]
fn windows_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Samples>();
    is_shared::<kino_dataset::EpisodeSamples>();
}

#[test]
fn steps_on_one_clock_are_frames_whatever_their_times_are() {
    let (_folder, dataset) = open_mixed();
    // The jittered clock of `force` has equal times; a step is still a frame.
    let windows = bind(
        &dataset,
        &request(
            stream("force"),
            vec![Window::new("force", At::Steps(vec![-1, 0, 1]))],
        ),
    );
    let episode = windows.episode(0).unwrap();
    let mut plan = SampleFrames::default();
    for sample in 1..episode.len() - 1 {
        episode.plan(sample, &mut plan).unwrap();
        assert_eq!(plan.windows[0].frames, [sample - 1, sample, sample + 1]);
        assert_eq!(plan.windows[0].state, [Out::Real; 3]);
    }
}

#[test]
fn a_latency_moves_the_stamp_that_is_looked_for() {
    let (_folder, dataset) = open_mixed();
    let late = Window {
        latency_ns: 100_000_000,
        ..Window::new("joints", At::Steps(vec![0]))
    };
    let windows = bind(&dataset, &request(stream("joints"), vec![late]));
    let episode = windows.episode(0).unwrap();
    let mut plan = SampleFrames::default();
    episode.plan(10, &mut plan).unwrap();
    // 100 ms are 50 frames at 500 Hz.
    assert_eq!(plan.windows[0].frames, [60]);
}

#[test]
fn whole_episodes_and_goals_are_single_samples() {
    let (_folder, dataset) = open_mixed();
    let windows = bind(&dataset, &whole_episode(&["camera", "words"]));
    assert_eq!(windows.counts(), [1, 1]);
    let sample = windows.read(1).unwrap();
    let camera = dataset.episode(1).unwrap().stream("camera").unwrap();
    let Array::Values { shape, bytes, .. } = &sample.fields[0].1 else {
        panic!("camera frames are numbers");
    };
    assert_eq!(shape, &[camera.len(), 2, 3, 3]);
    assert_eq!(*bytes, camera.read(0..camera.len()).unwrap());
    assert_eq!(sample.masks, []);
    let goal = Window {
        stack: Stack::Single,
        ..Window::new("words", At::Last)
    };
    let sample = bind(&dataset, &request(stream("actions"), vec![goal]))
        .read(0)
        .unwrap();
    let text = Array::Texts {
        shape: vec![],
        texts: vec!["done".to_owned()],
    };
    assert_eq!(sample.fields, [("words".to_owned(), text)]);
}

#[test]
fn robomimic_and_lerobot_requests_read_as_their_own_arithmetic_says() {
    let (_folder, dataset) = open_even();
    for (before, after) in [
        (Pad::Edge, Pad::Edge),
        (Pad::Drop, Pad::Edge),
        (Pad::Drop, Pad::Drop),
    ] {
        let asked = Robomimic {
            dataset_keys: vec!["actions".to_owned()],
            obs_keys: vec!["state".to_owned()],
            seq_length: 3,
            frame_stack: 2,
            before,
            after,
            masks: MaskDialect::PadMask,
            next_obs: NextObs::Leave,
            ..Robomimic::default()
        };
        let windows = bind(&dataset, &asked.request(&dataset).unwrap());
        let lost = u32::from(before == Pad::Drop) + 2 * u32::from(after == Pad::Drop);
        assert_eq!(windows.counts(), [9 - lost, 12 - lost, 4 - lost]);
        check(&dataset, windows.request()).unwrap();
    }
    let asked = LeRobot {
        anchor: None,
        keys: vec!["obs/state".to_owned(), "actions".to_owned()],
        delta_timestamps: vec![("actions".to_owned(), vec![-0.05, 0.0, 0.1])],
        tolerance_s: 1e-4,
    };
    let request = asked.request(&dataset).unwrap();
    check(&dataset, &request).unwrap();
    let sample = bind(&dataset, &request).read(8).unwrap();
    assert_eq!(sample.masks[0].0, "actions_is_pad");
    assert_eq!(sample.masks[0].1.values, [false, false, true]);
    assert_eq!(sample.masks.len(), 1);
}

#[test]
fn requests_that_the_dataset_cannot_serve_are_refused_with_what_would_be_right() {
    let (_folder, dataset) = open_mixed();
    let resolve = |name: &str, resolve| Window {
        resolve,
        ..Window::new(name, At::Times(vec![0]))
    };
    let linear = Resolve::Linear {
        max_staleness_ns: None,
    };
    let slerp = Resolve::Slerp {
        max_staleness_ns: None,
    };
    let far = Window {
        after: Pad::Drop,
        ..Window::new("camera", At::Times(vec![3_600_000_000_000]))
    };
    let dropped = Request {
        skip_first: 1000,
        skip_last: 7,
        ..request(stream("actions"), vec![Window::new("actions", At::Last)])
    };
    let cases = [
        (
            request(stream("action"), vec![resolve("camera", NEAREST)]),
            "anchor: no stream `action`; did you mean `actions`? There are ",
        ),
        (
            request(stream("actions"), vec![resolve("kamera", NEAREST)]),
            "window `kamera`: no stream `kamera`; did you mean `camera`?",
        ),
        (
            request(stream("actions"), vec![resolve("camera", linear)]),
            "window `camera`: `linear` needs a float dtype, but the stream is uint8; use `nearest` or `hold`",
        ),
        (
            request(stream("actions"), vec![resolve("words", slerp)]),
            "window `words`: `slerp` needs a float dtype, but the stream is text",
        ),
        (
            request(stream("actions"), vec![resolve("joints", slerp)]),
            "`slerp` needs quaternions (a last axis of 4), but the stream has shape [3]",
        ),
        (
            request(stream("actions"), vec![far]),
            "no sample is left in 2 episodes: window `camera` drops the anchors near the ends",
        ),
        (
            dropped,
            "`skip_first=1000` and `skip_last=7` skip every anchor",
        ),
        (
            request(stream("actions"), vec![Window::new("rare", At::Last)]),
            "episode `b` has no frames of stream `rare`; skip them with the filter `has(\"rare\")`",
        ),
        (
            request(stream("actions"), vec![Window::new("empty", At::Last)]),
            "2 episodes have no frames of stream `empty`: `a`, `b`; skip",
        ),
    ];
    for (request, says) in cases {
        let error = Samples::bind(&dataset, request, &Selection::default()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn steps_are_not_interpolated_and_keys_are_not_given_twice() {
    let (_folder, dataset) = open_mixed();
    let interpolated = Window {
        resolve: Resolve::Linear {
            max_staleness_ns: None,
        },
        ..Window::new("joints", At::Steps(vec![-1, 0]))
    };
    let task = Window {
        key: "task".to_owned(),
        ..Window::new("words", At::Last)
    };
    let twice = Request {
        include: vec![Include::Task],
        ..request(stream("actions"), vec![task])
    };
    for (request, says) in [
        (
            request(stream("actions"), vec![interpolated]),
            "window `joints`: `linear` interpolates between frames, but steps count frames; give times in seconds",
        ),
        (
            twice,
            "`include` adds the key `task`, which a window or a mask has already",
        ),
    ] {
        let error = Samples::bind(&dataset, request, &Selection::default()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn episodes_without_a_stream_are_skipped_by_a_filter() {
    let (_folder, dataset) = open_mixed();
    let only_a = Selection {
        filter: Some("has(\"rare\") and not has(\"empty\")".to_owned()),
        ..Selection::default()
    };
    let rare = request(stream("actions"), vec![Window::new("rare", At::Last)]);
    let windows = Samples::bind(&dataset, rare, &only_a).unwrap();
    assert_eq!(windows.episodes(), [0]);
    let error = windows.episode(1).unwrap_err().to_string();
    assert_eq!(error, "no selected episode 1; 1 are selected");
    let error = windows.locate(u64::MAX).unwrap_err().to_string();
    assert!(error.contains("the last is"), "{error}");
}

#[test]
fn steps_count_the_frames_of_their_own_stream() {
    let (_folder, dataset) = open_mixed();
    // The camera starts 5 ms after the actions and has 30 Hz, the actions have 20 Hz.
    let windows = vec![
        Window::new("camera", At::Steps(vec![0])),
        steps("actions", -2..6, Pad::Edge),
        steps("joints", -3..1, Pad::Edge),
    ];
    let samples = bind(&dataset, &request(stream("camera"), windows));
    let episode = samples.episode(0).unwrap();
    let mut plan = SampleFrames::default();
    for sample in 2..10 {
        episode.plan(sample, &mut plan).unwrap();
        let camera_ms = 5.0 + f64::from(sample) * 1000.0 / 30.0;
        let action = (camera_ms / 50.0).round() as u32;
        let expected: Vec<u32> = (action.saturating_sub(2)..action + 6).collect();
        let found = &plan.windows[1].frames;
        assert_eq!(found[found.len() - expected.len()..], expected);
        // 500 Hz from 20 ms before the actions on: the last three frames and the one at the anchor.
        // Halfway between two frames it is the earlier one.
        let joint = ((camera_ms + 20.0) / 2.0 - 0.5 - 1e-6).ceil() as u32;
        let expected: Vec<u32> = (joint - 3..=joint).collect();
        assert_eq!(plan.windows[2].frames, expected);
    }
    // 24 camera frames end at 772 ms, 17 actions at 800 ms: the last sample has 1 action left.
    episode.plan(23, &mut plan).unwrap();
    assert_eq!(plan.windows[1].frames, [13, 14, 15, 16, 16, 16, 16, 16]);
    let real = |state: &Out| *state == Out::Real;
    let padded: Vec<bool> = plan.windows[1].state.iter().map(real).collect();
    let (t, f) = (true, false);
    assert_eq!(padded, [t, t, t, t, f, f, f, f]);
}

#[test]
fn the_default_anchor_is_the_shared_clock_whatever_the_order_of_the_windows() {
    let (_folder, even) = open_even();
    let mut windows = vec![
        steps("obs/state", -1..1, Pad::Edge),
        steps("actions", 0..4, Pad::Edge),
    ];
    for _ in 0..2 {
        let samples = bind(&even, &request(Anchor::Shared, windows.clone()));
        assert_eq!(samples.request().anchor, stream("actions"));
        assert_eq!(samples.counts(), [9, 12, 4]);
        windows.reverse();
    }
    assert_eq!(
        bind(&even, &request(Anchor::Shared, windows[..1].to_vec()))
            .request()
            .anchor,
        stream("obs/state")
    );
    let goal = vec![Window::new("actions", At::Last)];
    let samples = bind(&even, &request(Anchor::Shared, goal));
    assert_eq!(samples.request().anchor, Anchor::Episode);
}

#[test]
fn streams_with_different_clocks_need_an_anchor_and_the_error_names_their_rates() {
    let (_folder, dataset) = open_mixed();
    let mut windows = vec![
        Window::new("camera", At::Times(vec![-100_000_000, 0])),
        steps("actions", 0..4, Pad::Edge),
        Window::new("words", At::Steps(vec![0])),
    ];
    let bind_shared = |windows: &[Window]| {
        let request = request(Anchor::Shared, windows.to_vec());
        Samples::bind(&dataset, request, &Selection::default())
    };
    for _ in 0..2 {
        let error = bind_shared(&windows).unwrap_err().to_string();
        assert_eq!(
            error,
            "the requested streams run at different rates (actions 20 Hz, camera 30 Hz); say which one's frames are the samples, such as anchor=\"actions\", or give a rate in Hz, such as anchor=10.0"
        );
        windows.reverse();
    }
    // A command that has to run on any dataset says what it prefers.
    let preferred = shared_anchor(&dataset, 0, &windows, &["nothing", "joints"]).unwrap();
    assert_eq!(preferred, stream("joints"));
    // Text has no say, but alone it is the anchor.
    windows.retain(|window| window.stream != "camera");
    let samples = bind_shared(&windows).unwrap();
    assert_eq!(samples.request().anchor, stream("actions"));
    windows.retain(|window| window.stream == "words");
    let samples = bind_shared(&windows).unwrap();
    assert_eq!(samples.request().anchor, stream("words"));
    let force = [
        Window::new("force", At::Steps(vec![0])),
        steps("pose", 0..1, Pad::Edge),
    ];
    let error = bind_shared(&force).unwrap_err().to_string();
    assert!(error.contains("force about "), "{error}");
}

#[test]
fn text_never_comes_from_the_future() {
    let (_folder, dataset) = open_mixed();
    // "reach" is said at 0 s, "done" at 0.5 s; actions have 20 Hz.
    let words = Window::new("words", At::Steps(vec![0]));
    let samples = bind(&dataset, &request(stream("actions"), vec![words]));
    let heard: Vec<String> = (0..17)
        .map(|index| match &samples.read(index).unwrap().fields[0].1 {
            Array::Texts { texts, .. } => texts[0].clone(),
            Array::Values { .. } => panic!("text is expected"),
        })
        .collect();
    let expected: Vec<&str> = (0..17)
        .map(|frame| if frame < 10 { "reach" } else { "done" })
        .collect();
    assert_eq!(heard, expected);
}
