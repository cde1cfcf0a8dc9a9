//! Plans every sample of a packed robomimic recording and prints how long one takes, on one core: `plan_windows
//! DATASET…`.
//!
//! The window is robomimic's: `seq_length` 10, two cameras (20 camera frames) and the low-dimensional streams; once
//! by steps on the shared clock, once by times on each stream's own. Every plan is compared with plain arithmetic
//! while it is timed, so the figures include the comparison; the planning alone is also timed and printed.
#![allow(clippy::print_stdout, reason = "a benchmark that prints its results")]

use std::path::Path;
use std::time::{Duration, Instant};

use kino_dataset::{
    At, CountSource, Dataset, DatasetError, EpisodeSamples, Kind, NextObs, Out, Pad, Request,
    Result, Robomimic, SampleFrames, Samples, Selection,
};

const SEQ_LENGTH: u32 = 10;
const ROUNDS: usize = 200;

fn main() -> Result<()> {
    for path in std::env::args().skip(1) {
        let dataset = Dataset::open(Path::new(&path))?;
        let steps = request(&dataset)?;
        let times = by_times(&dataset, &steps)?;
        bind("edge", &dataset, &steps)?;
        bind("drop", &dataset, &dropping(&steps))?;
        for (name, request) in [("steps", steps), ("times", times)] {
            measure(name, &dataset, request)?;
        }
    }
    Ok(())
}

/// The first two cameras and every low-dimensional observation.
fn request(dataset: &Dataset) -> Result<Request> {
    let observations = || {
        let streams = dataset.manifest().streams.iter();
        streams.filter_map(|stream| Some((stream.name.strip_prefix("obs/")?, stream.kind)))
    };
    let of_kind = |kind: Kind| observations().filter(move |(_, found)| *found == kind);
    let cameras = of_kind(Kind::Image).take(2);
    let asked = Robomimic {
        dataset_keys: vec!["actions".to_owned()],
        obs_keys: (cameras.chain(of_kind(Kind::Vector)))
            .map(|(key, _)| key.to_owned())
            .collect(),
        seq_length: SEQ_LENGTH,
        next_obs: NextObs::Leave,
        ..Robomimic::default()
    };
    asked.request(dataset)
}

/// The same window by times: a request that must search the clocks.
fn by_times(dataset: &Dataset, request: &Request) -> Result<Request> {
    let actions = dataset.episode(0)?.stream("actions")?;
    let times = actions.times_ns(0..actions.len().min(SEQ_LENGTH as usize))?;
    let start = times.first().copied().unwrap_or(0);
    let mut request = request.clone();
    for window in &mut request.windows {
        window.at = At::Times(times.iter().map(|time| time - start).collect());
    }
    Ok(request)
}

/// The same window without padding: a request whose samples are counted from the episodes.
fn dropping(request: &Request) -> Request {
    let mut request = request.clone();
    for window in &mut request.windows {
        (window.before, window.after) = (Pad::Drop, Pad::Drop);
    }
    request
}

fn bind(name: &str, dataset: &Dataset, request: &Request) -> Result<()> {
    let mut best = Duration::MAX;
    let mut source = CountSource::Table;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        source = Samples::bind(dataset, request.clone(), &Selection::default())?.source();
        best = best.min(start.elapsed());
    }
    let episodes = u32::try_from(dataset.len()).unwrap_or(u32::MAX);
    println!(
        "bind, pads {name}: counted from {source:?}, {:.2} µs per episode",
        best.as_secs_f64() * 1e6 / f64::from(episodes)
    );
    Ok(())
}

fn measure(name: &str, dataset: &Dataset, request: Request) -> Result<()> {
    let windows = Samples::bind(dataset, request, &Selection::default())?;
    let episodes: Vec<EpisodeSamples> = (0..windows.episodes().len())
        .map(|position| windows.episode(position))
        .collect::<Result<_>>()?;
    let mut plan = SampleFrames::default();
    let (mut best, mut best_checked) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for episode in &episodes {
            for sample in 0..episode.len() {
                episode.plan(sample, &mut plan)?;
                std::hint::black_box(&plan);
            }
        }
        best = best.min(start.elapsed());
        let start = Instant::now();
        for episode in &episodes {
            for sample in 0..episode.len() {
                episode.plan(sample, &mut plan)?;
                check(&plan, sample, episode.anchors())?;
            }
        }
        best_checked = best_checked.min(start.elapsed());
    }
    let frames: usize = plan.windows.iter().map(|window| window.frames.len()).sum();
    let per_sample = |time: Duration| {
        #[expect(clippy::cast_precision_loss, reason = "a figure for display")]
        let samples = windows.len() as f64;
        time.as_secs_f64() * 1e6 / samples
    };
    println!(
        "{name}: {} samples of {} windows, {frames} frames each: {:.3} µs per sample, {:.3} µs with the comparison",
        windows.len(),
        plan.windows.len(),
        per_sample(best),
        per_sample(best_checked)
    );
    Ok(())
}

/// Frame `sample + k`, the last one repeated past the end.
fn check(plan: &SampleFrames, sample: u32, frames: u32) -> Result<()> {
    for window in &plan.windows {
        let planned = window.frames.iter().zip(&window.state);
        for ((&frame, &state), wanted) in planned.zip(sample..) {
            let out = if wanted < frames {
                Out::Real
            } else {
                Out::After
            };
            if (frame, state) != (wanted.min(frames - 1), out) {
                return Err(DatasetError::Invalid {
                    what: format!("sample {sample}: frame {frame} {state:?} instead of {wanted}"),
                });
            }
        }
    }
    Ok(())
}
