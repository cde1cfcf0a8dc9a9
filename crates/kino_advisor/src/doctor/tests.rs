//! The verdict as a function of the figures, case by case, and the changes that follow.

use kino_dataset::Cost;

use super::evidence::FedRun;
use super::*;

fn run(batch_ms: f64) -> FreeRun {
    FreeRun {
        batches: 100,
        batch_s: batch_ms / 1e3,
        each_s: vec![batch_ms / 1e3; 100],
        is_steady: true,
        decode_excess: 1.0,
        ..FreeRun::default()
    }
}

fn fed(compute_ratio: f64) -> FedRun {
    FedRun {
        steps: 100,
        compute_ratio,
        utilisation: compute_ratio,
        prefetch: 4,
        ..FedRun::default()
    }
}

/// A step of 20 ms; batches as given, and their times without reading, decoding and collating.
fn evidence(compute_ratio: f64, whole: f64, [fetch, decode, collate]: [f64; 3]) -> Evidence {
    Evidence {
        step_s: 0.02,
        target: 0.95,
        setting: Setting {
            dataset: "lift.kino".to_owned(),
            windows: vec!["front × 1".to_owned()],
            batch: 64,
            cores: 16,
            machine_bytes: 64 << 30,
            load: 0.0,
            threads: 15,
            readers: 8,
            cpu_cores: None,
            prefetch: None,
            memory_bytes: 1 << 30,
            episodes: 10_000,
            decoded_bytes: 100 << 30,
            shuffles_everything: false,
            group_is_too_large: false,
            shuffle: None,
            images_are_floats: false,
            has_random_jpeg: false,
            emulated_storage: None,
        },
        fed: fed(compute_ratio),
        whole: run(whole),
        without: (compute_ratio < 0.95).then(|| Differences {
            only_fetch: run(1.0),
            without_fetch: run(fetch),
            without_decode: run(decode),
            without_collate: run(collate),
            without_cpu_limit: None,
            chosen_prefetch: None,
            nothing: fed(0.999),
        }),
        streams: Vec::new(),
    }
}

/// Every stage is equally slow.
fn slow() -> Evidence {
    evidence(0.2, 100.0, [99.0, 99.0, 99.0])
}

fn cases() -> Vec<(Cause, Evidence)> {
    vec![
        (Cause::SlowStep, evidence(1.0, 2.0, [0.0; 3])),
        (Cause::Nothing, evidence(0.97, 15.0, [0.0; 3])),
        (Cause::Storage, evidence(0.2, 100.0, [20.0, 99.0, 99.0])),
        (Cause::Decode, evidence(0.2, 100.0, [99.0, 20.0, 80.0])),
        (Cause::Collate, evidence(0.2, 100.0, [99.0, 80.0, 20.0])),
        (Cause::Jitter, evidence(0.7, 15.0, [14.0, 14.0, 14.0])),
        (Cause::HandOver, {
            let mut one = slow();
            if let Some(without) = &mut one.without {
                without.nothing = fed(0.5);
            }
            one
        }),
        // The loop waits a little even for a loader that does no work, but decoding is still the cause.
        (Cause::Decode, {
            let mut one = evidence(0.2, 100.0, [99.0, 20.0, 80.0]);
            if let Some(without) = &mut one.without {
                without.nothing = fed(0.9);
            }
            one
        }),
        (Cause::CpuShare, {
            let mut one = evidence(0.2, 100.0, [99.0, 20.0, 80.0]);
            if let Some(without) = &mut one.without {
                without.without_cpu_limit = Some(run(10.0));
            }
            one
        }),
        // A CPU limit that does not bind is not to blame.
        (Cause::Decode, {
            let mut one = evidence(0.2, 100.0, [99.0, 20.0, 80.0]);
            if let Some(without) = &mut one.without {
                without.without_cpu_limit = Some(run(95.0));
            }
            one
        }),
        (Cause::Jitter, {
            let mut one = slow();
            if let Some(without) = &mut one.without {
                without.chosen_prefetch = Some(run(12.0));
            }
            one
        }),
        (Cause::Memory, {
            let mut one = evidence(0.2, 100.0, [99.0, 20.0, 80.0]);
            one.whole.decode_excess = 9.0;
            one
        }),
        // A cache that is still filling decodes ahead: that is not repeated decoding.
        (Cause::Decode, {
            let mut one = evidence(0.2, 100.0, [99.0, 20.0, 80.0]);
            one.whole.decode_excess = 9.0;
            one.whole.is_steady = false;
            one
        }),
        // Two stages bind equally: the busier threads decide.
        (Cause::Storage, {
            let mut one = slow();
            one.whole.fetch_s = 0.8;
            one.whole.decode_s = 0.9;
            one
        }),
        (Cause::Decode, {
            let mut one = slow();
            one.whole.fetch_s = 0.2;
            one.whole.decode_s = 1.4;
            one
        }),
        (Cause::Collate, {
            let mut one = slow();
            one.whole.decode_s = 0.4;
            one.whole.collate_s = 1.0;
            one
        }),
    ]
}

#[test]
fn every_cause_follows_from_its_figures() {
    for (cause, evidence) in cases() {
        let verdict = Diagnosis::of(evidence.clone(), None).verdict;
        assert_eq!(verdict.cause, cause, "{}", verdict.sentence);
        assert!(verdict.sentence.ends_with('.') && verdict.sentence.contains('%'));
        let found = Diagnosis::of(evidence, None);
        assert!(!found.changes.is_empty());
        let text = serde_json::to_string(&found).unwrap();
        let read: Diagnosis = serde_json::from_str(&text).unwrap();
        assert_eq!(read.verdict, found.verdict);
        assert!(found.to_string().contains(&found.verdict.sentence));
    }
}

fn advice(evidence: &Evidence) -> Vec<Change> {
    Diagnosis::of(evidence.clone(), None).changes
}

#[test]
fn more_threads_divide_the_time_until_reading_binds() {
    let mut one = evidence(0.2, 100.0, [99.0, 20.0, 80.0]);
    one.setting.threads = 3;
    let first = &advice(&one)[0];
    assert_eq!(first.remedy, Remedy::Threads(15));
    assert!((first.batch_s - 0.02).abs() < 1e-9);
    if let Some(without) = &mut one.without {
        without.only_fetch = run(40.0);
    }
    let first = &advice(&one)[0];
    assert!((first.batch_s - 0.04).abs() < 1e-9 && (first.compute_ratio - 0.5).abs() < 1e-9);
    assert!((first.gain - 2.5).abs() < 1e-9);
}

#[test]
fn keeping_all_frames_is_recommended_if_they_fit_in_memory() {
    let mut one = evidence(0.2, 100.0, [20.0, 99.0, 99.0]);
    one.setting.decoded_bytes = 10 << 30;
    assert_eq!(advice(&one)[0].remedy, Remedy::Memory(10 << 30));
    one.setting.machine_bytes = 16 << 30;
    assert_eq!(advice(&one)[0].remedy, Remedy::Staging);
}

#[test]
fn shuffling_in_groups_is_recommended_if_a_group_holds_enough_episodes() {
    let mut one = evidence(0.2, 100.0, [99.0, 20.0, 80.0]);
    one.whole.decode_excess = 8.0;
    one.setting.shuffles_everything = true;
    let first = &advice(&one)[0];
    assert!(matches!(first.remedy, Remedy::Pool(bytes) if bytes < 1 << 29));
    assert!((first.batch_s - 0.03).abs() < 1e-9, "{first:?}");
    one.setting.episodes = 100;
    let found = advice(&one);
    assert!(
        found
            .iter()
            .all(|change| !matches!(change.remedy, Remedy::Pool(_)))
    );
}

#[test]
fn groups_that_do_not_fit_get_more_memory_or_become_smaller() {
    let mut one = evidence(0.2, 100.0, [99.0, 20.0, 80.0]);
    one.whole.decode_excess = 8.0;
    one.setting.group_is_too_large = true;
    one.setting.shuffle = Some(ShuffleQuality {
        episodes_per_batch: 40.0,
        vif: 1.2,
        decodes_per_frame: 8.0,
        ranks_per_frame: 1.0,
        memory_needed: 3 << 30,
        memory_for_all: 1 << 40,
    });
    let found = advice(&one);
    let of = |remedy: &Remedy| found.iter().find(|change| change.remedy == *remedy);
    let group = kino_loader::group_bytes(one.setting.memory_bytes);
    let smaller = of(&Remedy::Pool(group)).unwrap();
    assert!(smaller.how.contains("larger groups"), "{smaller:?}");
    assert!((smaller.batch_s - 0.03).abs() < 1e-9, "{smaller:?}");
    let more = of(&Remedy::Memory(3 << 30)).unwrap();
    assert!(more.how.starts_with("`memory=\"3222MB\"`"), "{more:?}");
    assert!((more.batch_s - 0.03).abs() < 1e-9, "{more:?}");
    // Not more than half of the machine's memory.
    one.setting.machine_bytes = 4 << 30;
    assert!(
        advice(&one)
            .iter()
            .all(|change| !matches!(change.remedy, Remedy::Memory(_)))
    );
}

#[test]
fn a_loop_that_waits_leaves_its_core_to_the_loader() {
    let mut one = evidence(0.2, 100.0, [20.0, 99.0, 99.0]);
    one.whole = run(200.0);
    if let Some(without) = &mut one.without {
        without.without_fetch = run(80.0);
    }
    let first = &advice(&one)[0];
    assert_eq!(first.remedy, Remedy::Staging);
    assert!((first.batch_s - 0.04).abs() < 1e-9, "{first:?}");
    assert!((first.compute_ratio - 0.5).abs() < 1e-9);
}

#[test]
fn converting_images_to_floats_on_the_gpu_is_recommended() {
    let mut one = evidence(0.2, 100.0, [99.0, 80.0, 20.0]);
    one.setting.images_are_floats = true;
    let found = advice(&one);
    assert_eq!(found[0].remedy, Remedy::Bytes);
    assert!((found[0].batch_s - 0.04).abs() < 1e-9);
    assert_eq!(found[1].remedy, Remedy::SmallerImages);
}

#[test]
fn compressing_fewer_images_is_recommended_only_where_some_are() {
    let mut one = evidence(0.2, 100.0, [99.0, 80.0, 20.0]);
    let is_found = |one: &Evidence, remedy: Remedy| {
        let mut found = advice(one).into_iter();
        found.any(|one| one.remedy == remedy)
    };
    assert!(!is_found(&one, Remedy::RandomJpeg) && is_found(&one, Remedy::SmallerImages));
    one.setting.has_random_jpeg = true;
    assert!(is_found(&one, Remedy::RandomJpeg) && !is_found(&one, Remedy::SmallerImages));
}

#[test]
fn codecs_are_compared_by_the_cost_record_of_the_machine() {
    let cost = |codec: &str, decode_ns: f64, ratio: f64| Cost {
        codec: codec.to_owned(),
        frame: "uint8[84, 84, 3]".to_owned(),
        frame_bytes: 21_168.0,
        ratio,
        encode_ns: 1.0,
        decode_ns,
        random_ns: decode_ns,
    };
    let heavy = cost("av1", 900.0, 50.0);
    let stream = StreamCosts {
        name: "front".to_owned(),
        codec: "av1".to_owned(),
        now: Some(heavy.clone()),
        known: vec![heavy, cost("jpeg:q=95", 90.0, 8.0), cost("raw", 300.0, 1.0)],
        variants: Vec::new(),
    };
    let mut one = evidence(0.2, 100.0, [99.0, 20.0, 80.0]);
    one.streams = vec![stream];
    let found = advice(&one);
    let jpeg = Remedy::Codec {
        stream: "front".to_owned(),
        codec: "jpeg:q=95".to_owned(),
    };
    assert_eq!(found[0].remedy, jpeg);
    assert!((found[0].batch_s - 0.028).abs() < 1e-9, "{found:?}");
    let last = found.last().unwrap();
    assert!(last.remedy == Remedy::GpuDecode && !last.is_available);
    // What a GPU decodes as it is.
    for (codec, engine) in [
        ("video:coding=h264", "NVDEC"),
        ("video:coding=hevc", "NVDEC"),
        ("jpeg:q=95", "nvJPEG"),
    ] {
        let mut there = one.clone();
        there.streams[0].now = Some(cost(codec, 900.0, 50.0));
        let found = advice(&there);
        let gpu = found.iter().find(|one| one.remedy == Remedy::GpuDecode);
        let gpu = gpu.unwrap();
        assert!(gpu.is_available && gpu.how.contains(engine), "{gpu:?}");
    }
    // A variant that the dataset has is predicted in the same way, and is less work than packing again.
    let small = VariantCost {
        variant: "small".to_owned(),
        cost: cost("jpeg:q=95", 90.0, 8.0),
    };
    one.streams[0].variants = vec![small];
    let found = advice(&one);
    let small = Remedy::Variant {
        stream: "front".to_owned(),
        variant: "small".to_owned(),
    };
    assert_eq!((&found[0].remedy, &found[1].remedy), (&small, &jpeg));
    assert!((found[0].batch_s - 0.028).abs() < 1e-9, "{found:?}");
    assert!(found[0].how.contains("read `front@small`"), "{found:?}");
}

#[test]
fn uneven_batches_are_replayed_with_a_deeper_prefetch() {
    let mut one = evidence(0.7, 15.0, [14.0, 14.0, 14.0]);
    one.whole.each_s = (0..200)
        .map(|idx| if idx % 20 == 19 { 0.2 } else { 0.005 })
        .collect();
    let first = &advice(&one)[0];
    assert!(
        matches!(first.remedy, Remedy::Prefetch(Some(8 | 16 | 32))),
        "{first:?}"
    );
    assert!(first.compute_ratio >= 0.95);
}
