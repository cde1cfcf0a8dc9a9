//! Any JSON as a request for windows: what parses has a canonical form, and finds its frames in a dataset.

#![no_main]

use std::sync::LazyLock;

use kino_dataset::{Dataset, LeRobot, Request, Robomimic, SampleFrames, Samples, Selection};
use libfuzzer_sys::fuzz_target;

static DATASET: LazyLock<Dataset> = LazyLock::new(kino_fuzz::dataset);

fuzz_target!(|text: &str| {
    if let Ok(request) = Request::from_json(text) {
        bind(request);
    }
    if let Ok(Ok(request)) =
        serde_json::from_str(text).map(|given: LeRobot| given.request(&DATASET))
    {
        bind(request);
    }
    if let Ok(Ok(request)) =
        serde_json::from_str(text).map(|given: Robomimic| given.request(&DATASET))
    {
        bind(request);
    }
});

fn bind(request: Request) {
    if let Ok(canonical) = request.canonical() {
        let again = Request::from_json(&canonical).expect("canonical text parses");
        assert_eq!(again.canonical().expect("a request"), canonical);
    }
    let Ok(samples) = Samples::bind(&DATASET, request, &Selection::default()) else {
        return;
    };
    let mut frames = SampleFrames::default();
    for index in [0, samples.len() / 2, samples.len().saturating_sub(1)] {
        let Ok(found) = samples.locate(index) else {
            return;
        };
        let episode = samples
            .episode(found.position)
            .expect("an episode of the dataset");
        episode
            .plan(found.sample, &mut frames)
            .expect("a sample of the episode");
        episode.read(&frames).expect("frames of the episode");
    }
}
