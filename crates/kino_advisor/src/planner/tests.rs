//! Choices from measurements made by hand: a camera and joints, three codecs, storage and steps of any speed.

use kino_dataset::{EpisodeCounts, Plan, SignalEvidence};
use kino_loader::Shuffle;

use super::streams::{CodecOption, StreamOptions};
use super::*;
use crate::signal::{Contrast, Effort, FoundBound};

/// A codec that keeps `bytes` of a frame and takes `decode_us` to decode it.
fn codec(text: &str, bytes: f64, decode_us: f64) -> CodecOption {
    CodecOption {
        codec: text.to_owned(),
        bytes,
        decode_ns: 1e3 * decode_us,
        random_ns: 1e3 * decode_us,
        reduced_ns: None,
        encode_ns: 1e4,
        max_abs_error: 0.0,
        psnr_db: None,
        resize: None,
        is_lossless: true,
        is_allowed: true,
        is_stored: false,
        foreign: None,
    }
}

/// 10,000 frames of a camera; lossless small and slow, zstd, raw; JPEG is not allowed.
fn measured() -> Measurements {
    let mut now = codec("camera:level=3,group=4", 1e4, 400.0);
    (now.is_stored, now.encode_ns) = (true, 0.0);
    let mut jpeg = codec("jpeg:q=90,sub=420", 3e3, 100.0);
    (jpeg.is_lossless, jpeg.is_allowed, jpeg.psnr_db) = (false, false, Some(35.0));
    let camera = StreamOptions {
        name: "wrist".to_owned(),
        kind: "image".to_owned(),
        frame: "uint8[100, 100, 3]".to_owned(),
        frame_bytes: 3e4,
        frames: 1e4,
        loaded_frames: 1e4,
        window: 1.0,
        resize_ns: 0.0,
        normalised: None,
        correction: 1.0,
        options: vec![
            now,
            codec("zstd:level=3,shuffle=1", 2e4, 100.0),
            codec("raw", 3e4, 5.0),
            jpeg,
        ],
        failed: Vec::new(),
    };
    Measurements {
        whole: Whole {
            name: "lift.kino".to_owned(),
            is_packed: true,
            source_bytes: 100_000_000,
            counts: EpisodeCounts {
                episodes: 100,
                frames: [("wrist".to_owned(), 10_000)].into(),
                complete_frames: [("wrist".to_owned(), 10_000)].into(),
                ..EpisodeCounts::default()
            },
        },
        windows: vec!["wrist × 1".to_owned()],
        storage: StorageCost {
            bytes_per_s: Some(1e9),
            latency_s: 0.0,
            readers: 8,
            cpu_s_per_byte: 0.0,
            page_cache_bytes: 0,
            is_given: true,
        },
        loader: LoaderCost {
            batch: 100.0,
            samples: 1e4,
            decoded_bytes: 3e8,
            decodes: 1.0,
            measured_decodes: 1.0,
            is_random: false,
            kept: 0.0,
            // 100 frames of 400 µs, and 1 ms of everything else.
            cpu_s: 0.041,
            rest_cpu_s: 0.001,
            aside_cpu_s: 0.0,
            bytes: 1e6,
            reads: 1.0,
            variation: 0.0,
            memory_bytes: 1 << 28,
            movable_bytes: 0.0,
            threads: 3,
            order: Shuffle::Global,
            shuffle: kino_loader::ShuffleQuality {
                episodes_per_batch: 10.0,
                vif: 1.0,
                decodes_per_frame: 1.0,
                ranks_per_frame: 1.0,
                memory_needed: 1 << 27,
                memory_for_all: 300_000_000,
            },
        },
        streams: vec![camera],
        bounds: Plan::lossless(),
        signal: None,
    }
}

fn question(step_ms: f64) -> Question {
    Question {
        step_s: step_ms / 1e3,
        ranks: 1,
        cores: 4,
        memory_bytes: 1 << 34,
        limits: Limits::default(),
        gpu_price: Some(2.0),
        hours: Some(1.0),
    }
}

fn chosen(measured: Measurements, question: Question) -> (String, f64) {
    let planned = Planned::of(measured, question);
    let plan = planned.choice().unwrap();
    let option = &planned.measured.streams[0].options[plan.codecs[0]];
    (option.codec.clone(), plan.prediction.compute_ratio)
}

#[test]
fn a_slow_model_gets_the_smallest_plan_and_a_fast_one_the_fastest_to_decode() {
    let (codec, ratio) = chosen(measured(), question(100.0));
    assert_eq!((codec.as_str(), ratio), ("camera:level=3,group=4", 1.0));
    // 41 ms of CPU time on three threads: 13.7 ms; zstd's 11 ms fit into a step of 10 ms, on three threads.
    let (codec, ratio) = chosen(measured(), question(10.0));
    assert_eq!((codec.as_str(), ratio), ("zstd:level=3,shuffle=1", 1.0));
    let (codec, _) = chosen(measured(), question(3.5));
    assert_eq!(codec, "raw");
}

#[test]
fn slow_storage_gets_fewer_bytes() {
    let mut slow = measured();
    slow.storage.bytes_per_s = Some(1e8);
    // raw: 30 ms of storage per batch; zstd: 20 ms; camera: 10 ms, and 13.7 ms of decoding.
    let (codec, ratio) = chosen(slow.clone(), question(10.0));
    assert_eq!(codec, "camera:level=3,group=4");
    assert!((ratio - 0.73).abs() < 0.01, "{ratio}");
    // In the page cache it does not matter.
    slow.storage.page_cache_bytes = 1 << 40;
    let (codec, ratio) = chosen(slow, question(10.0));
    assert_eq!((codec.as_str(), ratio), ("zstd:level=3,shuffle=1", 1.0));
}

#[test]
fn latency_counts_per_read_and_readers_share_it() {
    let mut far = measured();
    (far.storage.latency_s, far.loader.reads) = (0.08, 10.0);
    // Ten reads of 80 ms by eight threads: 100 ms per batch of camera pages, and a tenth of it in which they do not read.
    let planned = Planned::of(far, question(50.0));
    let camera = planned
        .plans
        .iter()
        .find(|plan| plan.codecs == [0])
        .unwrap();
    assert!((camera.prediction.fetch_s - 0.1 / 0.9).abs() < 1e-3);
    assert!((camera.prediction.compute_ratio - 0.45).abs() < 1e-2);
}

#[test]
fn memory_for_stored_pages_makes_reading_as_fast_as_decoding() {
    let mut far = measured();
    (far.storage.latency_s, far.loader.reads) = (0.08, 10.0);
    far.loader.memory_bytes = 150_000_000;
    let ratio = |movable_bytes: f64| {
        let mut one = far.clone();
        one.loader.movable_bytes = movable_bytes;
        let planned = Planned::of(one, question(20.0));
        let camera = planned.plans.iter().find(|plan| plan.codecs == [0]);
        let prediction = camera.unwrap().prediction.clone();
        (prediction.compute_ratio, prediction.fetch_s)
    };
    let (without, with) = (ratio(0.0), ratio(1.5e8));
    assert!((without.0 - 0.18).abs() < 1e-2, "{without:?}");
    // Decoding takes 41 ms on three threads, a little more with fewer decoded frames in memory.
    assert!(with.0 > 0.95 && with.1 < 0.02, "{with:?}");
    let little = ratio(1e7);
    assert!(without.0 < little.0 && little.0 < with.0, "{little:?}");
}

#[test]
fn a_busy_machine_is_a_factor() {
    let mut slow = measured();
    // The loader took twice what its codec takes alone.
    slow.loader.cpu_s = 0.081;
    let decode_s = |codec: usize| {
        let planned = Planned::of(slow.clone(), question(20.0));
        let plan = planned.plans.iter().find(|plan| plan.codecs == [codec]);
        plan.unwrap().prediction.decode_s
    };
    assert!((decode_s(0) - 0.08).abs() < 1e-9);
    assert!((decode_s(2) - 0.001).abs() < 1e-9);
}

#[test]
fn ranks_share_cores_and_storage() {
    let mut two = question(100.0);
    (two.ranks, two.cores) = (2, 2);
    let planned = Planned::of(measured(), two);
    let camera = planned
        .plans
        .iter()
        .find(|plan| plan.codecs == [0])
        .unwrap();
    // One core per rank: a step of 100 ms and 41 ms of loading share it.
    assert!((camera.prediction.batch_s - 0.141).abs() < 1e-9);
    assert!((camera.prediction.cores - 0.82).abs() < 1e-9);
}

#[test]
fn loss_is_shown_but_not_chosen_unless_it_is_allowed() {
    let planned = Planned::of(measured(), question(10.0));
    let refused = planned.plans.iter().filter(|plan| !plan.is_allowed);
    assert_eq!(refused.count(), 1);
    assert!(
        planned
            .to_string()
            .contains("which your bounds do not allow")
    );
    let mut allowed = measured();
    allowed.streams[0].options[3].is_allowed = true;
    let (codec, _) = chosen(allowed, question(10.0));
    assert_eq!(codec, "jpeg:q=90,sub=420");
}

#[test]
fn limits_are_kept_and_their_price_is_told() {
    let mut small = question(10.0);
    small.limits.max_bytes = Some(150_000_000);
    let planned = Planned::of(measured(), small);
    assert!(planned.is_within_limits);
    assert_eq!(planned.choice().unwrap().codecs, [0]);
    let (name, ratio, bytes) = &planned.answers.without_limit[0];
    assert_eq!((name.as_str(), *ratio, *bytes), ("bytes", 1.0, 2e8));
    let mut tiny = question(10.0);
    tiny.limits.max_bytes = Some(1);
    let planned = Planned::of(measured(), tiny);
    assert!(!planned.is_within_limits);
    assert_eq!(planned.choice().unwrap().codecs, [0], "the smallest");
    let mut quick = question(10.0);
    quick.limits.max_pack_s = Some(0.0);
    let planned = Planned::of(measured(), quick);
    assert_eq!(
        planned.choice().unwrap().codecs,
        [0],
        "pages that exist take no time"
    );
}

/// A global shuffle without memory for what it needs: each frame is decoded eight times per epoch.
fn short_of_memory() -> Measurements {
    let mut short = measured();
    let loader = &mut short.loader;
    (loader.is_random, loader.decodes, loader.measured_decodes) = (true, 8.0, 8.0);
    short.streams[0].window = 8.0;
    // 100 samples of eight frames of 400 µs.
    loader.cpu_s = 0.321;
    (loader.shuffle.memory_needed, loader.shuffle.memory_for_all) = (30_000_000, 30_000_000);
    loader.decoded_bytes = 3e8;
    loader.memory_bytes = 75_000_000;
    short
}

#[test]
fn what_more_memory_and_smaller_groups_would_bring_is_told_by_number() {
    let planned = Planned::of(short_of_memory(), question(20.0));
    let camera = |planned: &Planned| {
        let found = planned.plans.iter().position(|plan| plan.codecs == [0]);
        found.unwrap()
    };
    assert_ne!(
        planned.chosen,
        camera(&planned),
        "another codec helps a little"
    );
    // Only the camera's codec is allowed.
    let mut only = short_of_memory();
    only.streams[0].options.truncate(1);
    let planned = Planned::of(only, question(20.0));
    let choice = planned.choice().unwrap();
    // 320 ms on three threads.
    assert!(
        (choice.prediction.compute_ratio - 0.19).abs() < 0.01,
        "{choice:?}"
    );
    let [memory, groups] = &planned.answers.fewer_decodes[..] else {
        panic!("{:?}", planned.answers.fewer_decodes);
    };
    assert_eq!((&*memory.option, memory.decodes), ("memory=\"300MB\"", 0.0));
    // 75 MB are two groups of 10 of the 100 episodes, of 3 MB each.
    let episodes = (75_000_000 - (1 << 20)) / 23 * 10 / 3_000_000;
    let option = format!("shuffle=kinograph.Shuffle(episodes={episodes})");
    assert_eq!((&groups.option, groups.decodes), (&option, 1.0));
    // 100 frames per batch: 41 ms on three threads; or no decoding at all.
    assert!(
        !memory.mixes_less && memory.compute_ratio > 0.99,
        "{memory:?}"
    );
    assert!(
        groups.mixes_less && groups.compute_ratio > 0.99,
        "{groups:?}"
    );
    let text = planned.to_string();
    assert!(
        text.contains("Memory is the limit") && text.contains(&option),
        "{text}"
    );
    assert!(text.contains("decoded 8.0 times per epoch"), "{text}");
}

#[test]
fn memory_that_the_host_does_not_have_and_groups_that_hardly_mix_are_not_recommended() {
    let fewer = |short: Measurements, question: Question| {
        let found = Planned::of(short, question).answers.fewer_decodes;
        found.into_iter().map(|one| one.option).collect::<Vec<_>>()
    };
    let only = || {
        let mut only = short_of_memory();
        only.streams[0].options.truncate(1);
        only
    };
    let mut small = question(20.0);
    small.memory_bytes = 500_000_000;
    assert_eq!(
        fewer(only(), small).len(),
        1,
        "300 MB are more than half of it"
    );
    let mut tight = only();
    tight.loader.memory_bytes = 20_000_000;
    assert_eq!(
        fewer(tight, question(20.0)),
        ["memory=\"300MB\""],
        "two episodes"
    );
    // Nothing is needed where the GPU does not wait, or where samples are not shuffled.
    assert!(fewer(only(), question(2000.0)).is_empty());
    let mut sequential = only();
    sequential.loader.order = Shuffle::Sequential;
    assert!(fewer(sequential, question(20.0)).is_empty());
}

#[test]
fn episodes_that_cannot_be_loaded_are_stored_all_the_same() {
    let mut partly = measured();
    let counts = &mut partly.whole.counts;
    (counts.episodes, counts.incomplete) = (120, 20);
    counts.lacking = [("wrist".to_owned(), 20)].into();
    partly.streams[0].frames = 1.2e4;
    let planned = Planned::of(partly, question(100.0));
    let camera = planned
        .plans
        .iter()
        .find(|plan| plan.codecs == [0])
        .unwrap();
    assert_eq!(camera.prediction.bytes, 1.2e8);
    assert!(
        (camera.prediction.decode_s - 0.04).abs() < 1e-9,
        "as with 100 episodes"
    );
    let note = "20 of 120 episodes lack frames of `wrist` (20)";
    let text = planned.to_string();
    assert!(
        text.contains(note) && text.contains("`has(\"wrist\")`"),
        "{text}"
    );
    assert!(
        !Planned::of(measured(), question(100.0))
            .to_string()
            .contains("lack")
    );
}

#[test]
fn everything_decoded_in_memory_leaves_only_bytes_to_save() {
    let mut kept = measured();
    kept.loader.decodes = 0.0;
    let planned = Planned::of(kept, question(1.5));
    assert_eq!(planned.choice().unwrap().codecs, [0]);
    assert!(planned.answers.memory.decoded_fits);
    let prediction = &planned.choice().unwrap().prediction;
    assert!(prediction.first_compute_ratio < prediction.compute_ratio);
}

#[test]
fn the_answers_follow_from_the_choice() {
    let planned = Planned::of(measured(), question(100.0));
    let answers = &planned.answers;
    assert_eq!(answers.idle_cost.map(|cost| cost.cost_per_day), Some(0.0));
    // 100 batches of 100 ms are an epoch: 360 in an hour.
    assert!((answers.epochs[planned.chosen] - 360.0).abs() < 1e-6);
    let [now, faster] = &answers.needs[..] else {
        panic!("one for this model and one for a faster one");
    };
    assert!((now.cores - 0.41).abs() < 1e-9 && (faster.cores - 0.82).abs() < 1e-9);
    assert_eq!(now.cores_by_kind[0].0, "image");
    assert!((now.read_bytes_per_s - 1e7).abs() < 1e-3);
}

#[test]
fn what_if_asks_again_without_measuring() {
    let planned = Planned::of(measured(), question(100.0));
    let again = planned.what_if(question(10.0), Some("100MB/s".parse().unwrap()));
    assert_eq!(again.measured.storage.bytes_per_s, Some(1e8));
    assert_eq!(again.measured.streams, planned.measured.streams);
    assert!(again.choice().unwrap().prediction.compute_ratio < 0.8);
}

#[test]
fn the_plan_is_one_that_pack_reads() {
    let planned = Planned::of(measured(), question(10.0));
    let plan = Plan::from_toml(&planned.to_toml()).unwrap();
    assert_eq!(plan.rules.len(), 1);
    assert_eq!(
        plan.rules[0].codec.as_deref(),
        Some("zstd:level=3,shuffle=1")
    );
    let kept = Planned::of(measured(), question(100.0));
    assert!(Plan::from_toml(&kept.to_toml()).unwrap().rules.is_empty());
    let mut odd = measured();
    odd.streams[0].name = "a\"*\n[[stream]]".to_owned();
    odd.whole.name = "x\ny = 1".to_owned();
    let plan = Plan::from_toml(&Planned::of(odd, question(10.0)).to_toml()).unwrap();
    assert!(kino_dataset::matches_pattern(
        plan.rules[0].pattern.as_deref().unwrap(),
        "a\"*\n[[stream]]"
    ));
}

#[test]
fn text_json_and_html_show_the_choice() {
    let planned = Planned::of(measured(), question(10.0));
    let text = planned.to_string();
    for words in ["zstd:level=3,shuffle=1", "chosen", "as it is", "100.0 %"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let json = serde_json::to_string(&planned).unwrap();
    assert_eq!(serde_json::from_str::<Planned>(&json).unwrap(), planned);
    let html = planned.to_html();
    assert!(html.contains("<svg") && html.contains("Bytes and throughput"));
    assert!(planned.to_fragment().starts_with("<div"));
}

/// The loader resizes the camera to 50 × 50, which takes as long as decoding zstd.
fn resized(is_allowed: bool) -> Measurements {
    let mut measured = measured();
    let camera = &mut measured.streams[0];
    camera.resize_ns = 1e5;
    let small = |text: &str, bytes: f64, decode_us: f64| CodecOption {
        resize: Some((50, 50).into()),
        is_allowed,
        ..codec(text, bytes, decode_us)
    };
    camera.options.extend([
        small("predict:level=1", 4e3, 80.0),
        small("raw", 7.5e3, 2.0),
    ]);
    camera.normalised = Some(CodecOption {
        is_allowed: false,
        ..small("raw", 3e4, 8.0)
    });
    // 100 frames of 400 µs, resized in 100 µs each, and 1 ms of everything else.
    measured.loader.cpu_s = 0.051;
    measured
}

#[test]
fn images_decoded_at_a_fraction_of_their_size_cost_what_was_measured_so() {
    let mut camera = resized(true).streams.remove(0);
    let cost = |camera: &StreamOptions| -> Vec<(f64, f64)> {
        let each = camera.options.iter();
        each.map(|one| (camera.load_ns(one), camera.load_random_ns(one)))
            .collect()
    };
    let exact = cost(&camera);
    assert_eq!(exact[3], (2e5, 2e5), "decoded and resized");
    let small = camera.options.len() - 1;
    for idx in [3, small] {
        camera.options[idx].reduced_ns = Some(6e4);
    }
    let mut fast = exact;
    fast[3] = (6e4, 6e4);
    // What is stored in the size that is loaded is decoded whole.
    assert_eq!(cost(&camera), fast);
}

#[test]
fn images_are_resized_before_they_are_stored_only_if_that_is_allowed() {
    let planned = Planned::of(resized(false), question(10.0));
    let is_resized = |plan: &CandidatePlan| planned.is_resized(plan);
    assert!(!planned.plans.iter().any(is_resized));
    assert!(!planned.to_toml().contains("resize"));
    let planned = Planned::of(resized(true), question(10.0));
    let choice = planned.choice().unwrap();
    assert!(planned.is_resized(choice) && !choice.is_lossless);
    let toml = planned.to_toml();
    assert!(
        toml.contains("codec = \"predict:level=1\"\nresize = [50, 50]"),
        "{toml}"
    );
    assert!(Plan::from_toml(&toml).is_ok());
}

#[test]
fn every_split_point_is_compared_whether_it_is_allowed_or_not() {
    let planned = Planned::of(resized(false), question(3.0));
    let names: Vec<&str> = planned
        .split_points
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    let expected = [
        "as recorded",
        "decoded",
        "resized, lossless",
        "resized, raw",
        "normalised float32",
    ];
    assert_eq!(names, expected);
    let bytes: Vec<f64> = planned
        .split_points
        .iter()
        .map(|one| one.prediction.bytes)
        .collect();
    assert_eq!(bytes, [1e8, 3e8, 4e7, 7.5e7, 3e8]);
    // 400 and 5 µs to decode, and 100 to resize, unless that is done.
    let micros = planned
        .split_points
        .iter()
        .map(|one| one.sample_cpu_s * 1e6);
    let micros: Vec<f64> = micros.map(f64::round).collect();
    assert_eq!(micros, [500.0, 105.0, 80.0, 2.0, 8.0]);
    let ratios: Vec<f64> = planned
        .split_points
        .iter()
        .map(|one| one.prediction.compute_ratio)
        .collect();
    assert!(ratios[0] < ratios[1] && ratios[1] < ratios[2] && ratios[2] < ratios[3]);
    // Encoding 10 µs, decoding to check, and resizing 100 µs; 10,000 frames on four cores.
    let pack_s = planned.split_points[3].prediction.pack_s;
    assert!((pack_s - 1e4 * 112e-6 / 4.0).abs() < 1e-9, "{pack_s}");
    let text = planned.to_string();
    assert!(text.contains("--allow-resize"), "{text}");
    assert!(
        Planned::of(measured(), question(3.0))
            .split_points
            .is_empty()
    );
    let planned = Planned::of(resized(true), question(3.0));
    assert!(planned.to_string().contains("allowed here"));
    assert!(planned.to_html().contains("Split points"));
}

#[test]
fn the_plan_of_a_signal_bound_has_what_was_measured_and_protects_events() {
    let evidence = SignalEvidence {
        bound: "signal(2%)".to_owned(),
        codec: "jpeg:psnr=39,sub=420".to_owned(),
        contrast: "total".to_owned(),
        target: "actions".to_owned(),
        increase: 0.004,
        low: -0.004,
        high: 0.013,
        control: "blur 4".to_owned(),
        control_increase: 0.5,
        skill: 0.3,
        episodes: 100,
        frames: 4000,
        frame_bytes: 2e3,
        lossless_frame_bytes: 1e4,
    };
    let bound = |stream: &str, codec: Option<&str>, reason: &str| FoundBound {
        stream: stream.to_owned(),
        percent: 2.0,
        codec: codec.map(str::to_owned),
        frame_bytes: 2e3,
        lossless_frame_bytes: 1e4,
        reason: reason.to_owned(),
        evidence: codec.map(|_| evidence.clone()),
    };
    let mut measured = measured();
    let mut jpeg = codec("jpeg:psnr=39,sub=420", 2e3, 80.0);
    (jpeg.is_lossless, jpeg.psnr_db) = (false, Some(39.2));
    measured.streams[0].options.push(jpeg);
    let mut side = measured.streams[0].clone();
    side.name = "side".to_owned();
    side.options.truncate(1);
    measured.streams.push(side);
    let asked = "[[stream]]\nkind = \"image\"\nbound = \"signal(2%)\"\nprotect = [\"grip\"]\n\
                 [[event]]\nname = \"grip\"\nstream = \"actions\"\ndetect = \"transition\"";
    measured.bounds = Plan::from_toml(asked).unwrap();
    measured.signal = Some(FoundBounds {
        contrast: Contrast::Total,
        streams: vec![
            bound("wrist", Some("jpeg:psnr=39,sub=420"), ""),
            bound("side", None, "cannot tell: no\nskill"),
        ],
        looked: Vec::new(),
        inputs: Vec::new(),
        targets: Vec::new(),
        skill: Vec::new(),
        controls: Vec::new(),
        effort: Effort::default(),
    });
    let planned = Planned::of(measured, question(10.0));
    let toml = planned.to_toml();
    let plan = Plan::from_toml(&toml).unwrap();
    assert_eq!(plan.rules.len(), 1, "{toml}");
    let rule = &plan.rules[0];
    assert_eq!(rule.codec.as_deref(), Some("jpeg:psnr=39,sub=420"));
    assert_eq!(rule.protect, ["grip"]);
    assert_eq!(rule.signal.as_ref(), Some(&evidence));
    assert_eq!(plan.events, planned.measured.bounds.events);
    for shown in [toml, planned.to_string(), planned.to_html()] {
        assert!(
            shown.contains("`side`, signal(2%): stays lossless; cannot tell"),
            "{shown}"
        );
    }
    // Another choice from the same measurements keeps what they allow.
    let again = planned.what_if(question(1.0), None);
    assert_eq!(again.measured.signal, planned.measured.signal);
}
