//! Losses that are planted in a small recording are seen, and lossless codecs are not flagged.

use std::path::Path;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{Arrival, DatasetWriter, EpisodeInfo, Start, StreamInfo, Times, WriterOptions};

use super::random::Random;
use super::*;
use kino_dataset::Kind;

const SIDE: usize = 20;
const FRAMES: usize = 30;

fn info(name: &str, kind: Kind, dtype: Dtype, shape: &[usize]) -> StreamInfo {
    StreamInfo {
        name: name.to_owned(),
        kind,
        frame: FrameType::values(dtype, shape).unwrap(),
        frames: FRAMES as u64,
        times: Times::Rate {
            rate_hz: 10.0,
            start_ns: 0,
        },
        arrival: Arrival::Values,
        shared: None,
    }
}

/// A square of a color at a place, with soft edges.
fn paint(image: &mut [u8], color: usize, (cy, cx): (f64, f64)) {
    for y in 0..SIDE {
        for x in 0..SIDE {
            let inside = |a: usize, b: f64| (3.5 - (a as f64 - b).abs()).clamp(0.0, 1.0);
            let level = inside(y, cy) * inside(x, cx);
            let pixel = &mut image[(y * SIDE + x) * 3 + color];
            *pixel = losses::to_u8(f64::from(*pixel) * (1.0 - level) + 230.0 * level);
        }
    }
}

/// A place that wanders through a range.
fn wander(random: &mut Random, low: f64, high: f64) -> Vec<f64> {
    let [phase, speed] = [random.unit() * 6.3, 0.1 + 0.25 * random.unit()];
    (0..FRAMES)
        .map(|step| low + (high - low) * (0.5 + 0.5 * (phase + speed * step as f64).sin()))
        .collect()
}

/// Episodes whose actions are where the red square is in `front` (in its upper half) and in `wrist`, and the square of
/// the gripper; a blue square that does not matter moves in both cameras.
fn record(path: &Path, episodes: usize) -> Dataset {
    record_as(path, episodes, Plan::lossless())
}

fn record_as(path: &Path, episodes: usize, plan: Plan) -> Dataset {
    let options = WriterOptions {
        plan,
        ..WriterOptions::default()
    };
    let mut writer = DatasetWriter::open(path, Start::New, options).unwrap();
    let mut random = Random::new(1);
    for _ in 0..episodes {
        let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
        let [front, wrist, other] = [3.0, 3.0, 3.0].map(|low| wander(&mut random, low, 16.0));
        let gripper = wander(&mut random, 0.0, 1.0);
        let other = [other, wander(&mut random, 3.0, 16.0)];
        let image = |x: &[f64], other: &[f64], random: &mut Random| {
            let mut all = Vec::new();
            for step in 0..FRAMES {
                let mut image: Vec<u8> = (0..SIDE * SIDE * 3)
                    .map(|_| losses::to_u8(60.0 + 4.0 * random.unit()))
                    .collect();
                paint(&mut image, 0, (5.0, x[step]));
                paint(&mut image, 2, (5.0, other[step]));
                all.extend(image);
            }
            all
        };
        let bytes = |values: Vec<f64>| values.into_iter().flat_map(to_bytes).collect::<Vec<u8>>();
        episode
            .stream(&info("gripper", Kind::Vector, Dtype::F32, &[1]))
            .unwrap();
        episode.push(&bytes(gripper.clone())).unwrap();
        for (name, x, other) in [("front", &front, &other[0]), ("wrist", &wrist, &other[1])] {
            episode
                .stream(&info(name, Kind::Image, Dtype::U8, &[SIDE, SIDE, 3]))
                .unwrap();
            episode.push(&image(x, other, &mut random)).unwrap();
        }
        let actions = (0..FRAMES)
            .flat_map(|step| [front[step], wrist[step], 40.0 * gripper[step]])
            .collect();
        episode
            .stream(&info("actions", Kind::Vector, Dtype::F32, &[3]))
            .unwrap();
        episode.push(&bytes(actions)).unwrap();
        episode.finish().unwrap();
    }
    writer.commit("made").unwrap();
    Dataset::open(path).unwrap()
}

fn to_bytes(value: f64) -> [u8; 4] {
    ridge::to_f32(value).to_le_bytes()
}

/// Changes frames by candidate.
struct Planted(Vec<fn(&mut [u8])>);

impl ProbeHost for Planted {
    fn apply(
        &mut self,
        candidate: usize,
        _stream: &str,
        _ty: &ValueType,
        frames: &[u8],
    ) -> Result<Vec<u8>> {
        let mut changed = frames.to_vec();
        self.0[candidate](&mut changed);
        Ok(changed)
    }
}

fn quick() -> ProbeOptions {
    ProbeOptions {
        chunk: 1,
        features: 128,
        seeds: 2,
        folds: 6,
        ..ProbeOptions::default()
    }
}

fn codec(name: &str, stream: &str, codec: &str) -> Candidate {
    let plan = format!("[[stream]]\nmatch = \"{stream}\"\ncodec = \"{codec}\"");
    Candidate {
        name: name.to_owned(),
        change: Change::Plan(Plan::from_toml(&plan).unwrap()),
    }
}

fn given(name: &str, stream: &str) -> Candidate {
    Candidate {
        name: name.to_owned(),
        change: Change::Given(vec![stream.to_owned()]),
    }
}

/// The upper half loses its columns: where the squares are cannot be seen.
fn smear(frames: &mut [u8]) {
    for frame in frames.chunks_exact_mut(SIDE * SIDE * 3) {
        for row in frame[..SIDE * SIDE * 3 / 2].chunks_exact_mut(SIDE * 3) {
            for channel in 0..3 {
                let sum: usize = row
                    .iter()
                    .skip(channel)
                    .step_by(3)
                    .map(|value| usize::from(*value))
                    .sum();
                let mean = u8::try_from(sum / SIDE).unwrap();
                row.iter_mut()
                    .skip(channel)
                    .step_by(3)
                    .for_each(|value| *value = mean);
            }
        }
    }
}

fn swap(frames: &mut [u8]) {
    frames
        .as_chunks_mut::<3>()
        .0
        .iter_mut()
        .for_each(|pixel| pixel.swap(0, 2));
}

fn freeze(frames: &mut [u8]) {
    let (first, rest) = frames.split_at_mut(SIDE * SIDE * 3);
    rest.chunks_exact_mut(first.len())
        .for_each(|frame| frame.copy_from_slice(first));
}

#[test]
fn planted_losses_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = record(&folder.path().join("planted.kino"), 24);
    let candidates = [
        given("smeared", "front"),
        given("swapped", "front"),
        given("frozen", "wrist"),
        codec("rounded", "gripper", "vector:abs=0.07"),
        codec("rounded actions", "actions", "vector:abs=3"),
        codec("fine", "front", "jpeg:q=100"),
    ];
    let mut host = Planted(vec![smear, swap, freeze, |_| (), |_| (), |_| ()]);
    let probed = probe(&dataset, &candidates, &quick(), &mut host).unwrap();
    let told = |candidate: usize, contrast| probed.candidates[candidate].worst(contrast).unwrap();
    for (candidate, contrasts) in [
        (0, &Contrast::ALL[..]),
        (1, &[Contrast::Total, Contrast::Mismatch]),
        (2, &Contrast::ALL),
        (3, &[Contrast::Mismatch]),
        (4, &[Contrast::Mismatch]),
    ] {
        for contrast in contrasts {
            let found = told(candidate, *contrast);
            assert_eq!(found.verdict, Verdict::Harm, "{candidate}: {found:?}");
        }
    }
    // A colleague who swaps channels in training and on the robot loses nothing, and near to that with JPEG 100.
    for (candidate, contrast) in [
        (1, Contrast::Information),
        (5, Contrast::Total),
        (5, Contrast::Information),
    ] {
        let found = told(candidate, contrast);
        let high = found.increase.unwrap().high;
        assert!(
            matches!(found.verdict, Verdict::NoHarmAbove { limit } if limit == high.max(0.0)),
            "{found:?}"
        );
    }
    let effort = &probed.effort;
    assert!(
        (1..effort.anchors).contains(&effort.near_events),
        "{effort:?}"
    );
    assert_eq!((effort.episodes, effort.anchors), (24, 720));
    assert_eq!(probed.controls.len(), 6);
    assert!(probed.to_html().contains("smeared") && probed.to_string().contains("harm"));
    assert!(probed.to_string().contains("Rounded vectors"));
}

#[test]
fn lossless_codecs_are_never_flagged() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = record(&folder.path().join("lossless.kino"), 6);
    for seed in 0..20 {
        let options = ProbeOptions {
            seed,
            folds: 3,
            seeds: 1,
            ..quick()
        };
        let name = ["camera", "predict", "raw"][usize::try_from(seed).unwrap() % 3];
        let candidates = [codec(name, "*", name), codec("vector", "gripper", "vector")];
        // `camera` and `predict` are for images only.
        let candidates = match name {
            "raw" => candidates.to_vec(),
            _ => vec![codec(name, "front", name), candidates[1].clone()],
        };
        let probed = probe(&dataset, &candidates, &options, &mut Planted(Vec::new())).unwrap();
        for candidate in &probed.candidates {
            for contrast in Contrast::ALL {
                let worst = candidate.worst(contrast).unwrap();
                assert_eq!(worst.verdict, Verdict::Identical);
                assert_eq!(worst.increase, Some(Interval::exactly(0.0)));
            }
        }
        assert!(probed.to_string().contains("exactly 0"));
        assert!(!probed.to_string().contains("Rounded vectors"));
    }
}

#[test]
fn what_is_not_in_the_images_cannot_be_told() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = record(&folder.path().join("blind.kino"), 12);
    let chosen = |stream: &str, elements: Option<Vec<usize>>| Chosen {
        stream: stream.to_owned(),
        elements,
    };
    // The wrist camera says nothing about the square in the front, the gripper all about the third action.
    for (element, reason) in [(0, "constant"), (2, "vectors alone")] {
        let options = ProbeOptions {
            inputs: vec![chosen("wrist", None), chosen("gripper", None)],
            targets: vec![chosen("actions", Some(vec![element]))],
            ..quick()
        };
        let candidates = [codec("jpeg", "wrist", "jpeg:q=5")];
        let probed = probe(&dataset, &candidates, &options, &mut Planted(Vec::new())).unwrap();
        for contrast in Contrast::ALL {
            match &probed.candidates[0].worst(contrast).unwrap().verdict {
                Verdict::CannotTell { reason: found } => assert!(found.contains(reason), "{found}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn what_cannot_be_probed_says_what_can() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = record(&folder.path().join("refused.kino"), 3);
    let refused = |candidates: &[Candidate], options: &ProbeOptions| {
        let found = probe(&dataset, candidates, options, &mut Planted(Vec::new()));
        found.unwrap_err().to_string()
    };
    let jpeg = [codec("jpeg", "front", "jpeg:q=5")];
    assert!(refused(&[], &quick()).contains("name a plan"));
    // Without a word about progress: nothing was measured before.
    struct Silent;
    impl ProbeHost for Silent {
        fn begins(&mut self, what: &str) {
            panic!("measures {what}");
        }
    }
    let early = probe(&dataset, &jpeg, &quick(), &mut Silent).unwrap_err();
    assert!(early.to_string().contains("3 episodes have every stream"));
    let dataset = record(&folder.path().join("enough.kino"), 6);
    let refused = |candidates: &[Candidate], options: &ProbeOptions| {
        let found = probe(&dataset, candidates, options, &mut Planted(Vec::new()));
        found.unwrap_err().to_string()
    };
    for typo in [codec("jpeg", "frunt", "jpeg:q=5"), given("mine", "frunt")] {
        let error = refused(&[typo], &quick());
        let says = "`frunt` matches no stream; did you mean `front`? There are ";
        assert!(error.starts_with(says), "{error}");
    }
    let mut wrong = quick();
    wrong.targets = vec![Chosen {
        stream: "action".to_owned(),
        elements: None,
    }];
    assert!(refused(&jpeg, &wrong).contains("actions"));
    wrong.targets = vec![Chosen {
        stream: "actions".to_owned(),
        elements: Some(vec![3]),
    }];
    assert!(refused(&jpeg, &wrong).contains("none with the number 3"));
}

fn bounded(pattern: &str, rest: &str) -> Plan {
    Plan::from_toml(&format!("[[stream]]\nmatch = \"{pattern}\"\n{rest}")).unwrap()
}

#[test]
fn a_signal_bound_becomes_codecs_whose_harm_all_together_is_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = record(&folder.path().join("bounded.kino"), 24);
    let asked = bounded("*", "bound = \"signal(95%)\"");
    let found = find_bounds(&dataset, &asked, &quick(), &mut Planted(Vec::new())).unwrap();
    let names: Vec<&str> = found.streams.iter().map(|one| &*one.stream).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    let lossy: Vec<_> = found
        .streams
        .iter()
        .filter(|one| one.codec.is_some())
        .collect();
    for name in ["wrist", "gripper"] {
        assert!(lossy.iter().any(|one| one.stream == name), "{found:#?}");
    }
    for one in &lossy {
        assert!(one.frame_bytes < one.lossless_frame_bytes, "{one:?}");
        let evidence = one.evidence.as_ref().unwrap();
        assert!(evidence.high < 0.95 && evidence.low <= evidence.increase);
        assert_eq!(Some(&evidence.codec), one.codec.as_ref());
        assert!(evidence.skill > 0.02 && !evidence.control.is_empty());
        assert_eq!((evidence.episodes, evidence.frames), (24, 720));
    }
    // The probe, asked about these codecs alone, gives the same figures.
    let mut plan = Plan::lossless();
    for one in &lossy {
        let codec = format!("codec = \"{}\"", one.codec.as_ref().unwrap());
        plan.rules.extend(bounded(&one.stream, &codec).rules);
    }
    let candidate = Candidate {
        name: "found".to_owned(),
        change: Change::Plan(plan),
    };
    let probed = probe(&dataset, &[candidate], &quick(), &mut Planted(Vec::new())).unwrap();
    let outcome = probed.candidates[0]
        .outcomes(Contrast::Total)
        .next()
        .unwrap();
    let increase = outcome.increase.unwrap();
    for one in &lossy {
        let evidence = one.evidence.as_ref().unwrap();
        let figures = [evidence.increase, evidence.low, evidence.high];
        assert_eq!(figures, [increase.mean, increase.low, increase.high]);
    }
    // A step that was not kept ends a stream, and every kept one was smaller than the one before.
    for name in names {
        let mut steps = found.looked.iter().filter(|one| one.stream == name);
        let mut before = f64::INFINITY;
        while let Some(step) = steps.next() {
            assert!(step.frame_bytes < before);
            before = step.frame_bytes;
            assert!(step.is_kept || steps.next().is_none());
        }
    }
    let tight = bounded("*", "bound = \"signal(0.001%)\"");
    let found = find_bounds(&dataset, &tight, &quick(), &mut Planted(Vec::new())).unwrap();
    let cameras = found
        .streams
        .iter()
        .filter(|one| one.stream != "gripper" && one.stream != "actions");
    for one in cameras {
        assert_eq!(one.codec, None);
        assert!(one.reason.contains("not shown"), "{}", one.reason);
    }
}

#[test]
fn what_the_probe_cannot_tell_stays_lossless_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = record(&folder.path().join("blind.kino"), 12);
    let chosen = |stream: &str, elements: Option<Vec<usize>>| Chosen {
        stream: stream.to_owned(),
        elements,
    };
    let of = |asked: &Plan, options: &ProbeOptions, dataset: &Dataset| {
        let found = find_bounds(dataset, asked, options, &mut Planted(Vec::new())).unwrap();
        let one = found.streams.into_iter().next().unwrap();
        assert_eq!((one.codec, one.evidence), (None, None));
        one.reason
    };
    let wrist = bounded("wrist", "bound = \"signal(20%)\"");
    // The wrist camera says nothing about the square in the front, the gripper all about the third action.
    for (element, says) in [(0, "constant"), (2, "vectors alone")] {
        let options = ProbeOptions {
            inputs: vec![chosen("wrist", None), chosen("gripper", None)],
            targets: vec![chosen("actions", Some(vec![element]))],
            ..quick()
        };
        let reason = of(&wrist, &options, &dataset);
        assert!(
            reason.contains("cannot tell") && reason.contains(says),
            "{reason}"
        );
    }
    let options = ProbeOptions {
        inputs: vec![chosen("front", None)],
        ..quick()
    };
    let reason = of(&wrist, &options, &dataset);
    assert!(reason.contains("neither sees nor predicts"), "{reason}");
    let few = record(&folder.path().join("few.kino"), 3);
    let reason = of(&wrist, &quick(), &few);
    assert!(reason.contains("3 episodes have every stream"), "{reason}");
    // A rule may name the codec; a setting that is larger than lossless is never taken.
    let large = bounded("wrist", "codec = \"jpeg:q=100\"\nbound = \"signal(20%)\"");
    let reason = of(&large, &quick(), &dataset);
    assert!(reason.contains("nothing lossy is smaller"), "{reason}");
}

#[test]
fn protected_frames_are_as_a_dataset_stores_them() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = record(&folder.path().join("exact.kino"), 12);
    let events = "[[event]]\nname = \"grip\"\nstream = \"gripper\"\ndetect = \"transition\"";
    let plan = |protect: &str| {
        let images = format!("[[stream]]\nmatch = \"front\"\nbound = \"psnr(30)\"\n{protect}");
        let vectors = format!("[[stream]]\nkind = \"vector\"\nbound = \"abs(0.3)\"\n{protect}");
        Plan::from_toml(&format!("{images}\n{vectors}\n{events}")).unwrap()
    };
    let protecting = plan("protect = [\"grip\"]");
    let stored = record_as(&folder.path().join("stored.kino"), 12, protecting.clone());
    let candidate = |name: &str, change| Candidate {
        name: name.to_owned(),
        change,
    };
    let candidates = [
        candidate("plan", Change::Plan(protecting)),
        candidate("stored", Change::Stored(stored)),
        candidate("unprotected", Change::Plan(plan(""))),
    ];
    let probed = probe(&dataset, &candidates, &quick(), &mut Planted(Vec::new())).unwrap();
    let images = |candidate: usize| {
        let arms = &probed.candidates[candidate].arms;
        let arm = arms.iter().find(|arm| arm.streams == ["front"]).unwrap();
        arm.outcomes
            .iter()
            .map(|one| one.increase)
            .collect::<Vec<_>>()
    };
    assert_eq!(images(0), images(1));
    assert_ne!(images(0), images(2));
    // Near the events, where every frame is exact, nothing is fed to the policy that it has not seen.
    let near = |candidate: usize| {
        let all = &probed.candidates[candidate].arms.last().unwrap().outcomes;
        let one = all
            .iter()
            .find(|one| (one.region, one.contrast) == (Region::Events, Contrast::Mismatch));
        one.unwrap().increase.unwrap().mean.abs()
    };
    assert!(near(0) < near(2), "{} {}", near(0), near(2));
}
