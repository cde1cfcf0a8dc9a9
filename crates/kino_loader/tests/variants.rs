//! Variants of other image sizes: a batch has one shape, or the loader does not start.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, CountSource, Dataset, DatasetWriter, EpisodeInfo, Kind, Plan, Request, Samples,
    Selection, Start, StreamInfo, Times, WriterOptions,
};
use kino_loader::{ImageOptions, Loader, LoaderOptions, Order, PerKey, Settings, Size, Source};
use tempfile::TempDir;

const PLAN: &str = "[[stream]]\nmatch = \"front\"\nvariant = \"small\"\ncodec = \"raw\"\n\
     [[event]]\nname = \"any\"\nstream = \"**\"\ndetect = \"transition\"";
const REQUEST: &str = r#"{"anchor": {"stream": "front"},
    "windows": [{"stream": "front", "at": {"steps": [-1, 0]}, "before": "drop"}]}"#;

fn info(name: &str, side: usize, frames: u64) -> StreamInfo {
    StreamInfo {
        name: name.to_owned(),
        kind: Kind::Image,
        frame: FrameType::values(Dtype::U8, &[side, side, 3]).unwrap(),
        frames,
        times: Times::Rate {
            rate_hz: 20.0,
            start_ns: 0,
        },
        arrival: Arrival::Values,
        shared: None,
    }
}

/// Two episodes of 8×8 images of one value, and of 4×4 images of that value + 100.
fn recorded() -> (TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let options = WriterOptions {
        plan: Plan::from_toml(PLAN).unwrap(),
        ..WriterOptions::default()
    };
    let mut writer = DatasetWriter::open(&path, Start::New, options).unwrap();
    for frames in [20, 30] {
        let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
        let fine = info("front", 8, frames);
        episode.stream(&fine).unwrap();
        for frame in 0..frames {
            episode
                .push(&[u8::try_from(frame).unwrap(); 8 * 8 * 3])
                .unwrap();
        }
        assert_eq!(episode.variants(&fine), ["small"]);
        let small = info("front@small", 4, frames);
        episode.variant(&small, "front").unwrap();
        for frame in 0..frames {
            episode
                .push(&[u8::try_from(100 + frame).unwrap(); 4 * 4 * 3])
                .unwrap();
        }
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    (folder, dataset)
}

fn samples(dataset: &Dataset, variant: Option<&str>) -> Samples {
    let mut request = Request::from_json(REQUEST).unwrap();
    request.variants = vec![("front".to_owned(), variant.map(str::to_owned))];
    Samples::bind(dataset, request, &Selection::default()).unwrap()
}

fn started(dataset: &Dataset, images: ImageOptions) -> kino_loader::Result<(Order, Loader)> {
    let (fine, small) = (samples(dataset, None), samples(dataset, Some("small")));
    // The table is enough to count the samples, whichever variant is read.
    assert_eq!(small.source(), CountSource::Table);
    assert_eq!(small.counts(), fine.counts());
    let mut source = Source::of(&fine).unwrap();
    source.add_variant(&fine, 0, &small).unwrap();
    source.add_variant(&fine, 1, &fine).unwrap();
    assert!(source.add_variant(&fine, 1, &small).is_err());
    let settings = Settings {
        batch_size: 8,
        ..Settings::default()
    };
    let order = Order::new(source, settings).unwrap();
    let options = LoaderOptions {
        images,
        ..LoaderOptions::default()
    };
    let loader = Loader::start(order.clone(), vec![vec![small, fine]], options)?;
    Ok((order, loader))
}

#[test]
fn a_switch_to_another_size_needs_one_size_of_images() {
    let (_folder, dataset) = recorded();
    let refused = started(&dataset, ImageOptions::default()).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("uint8[4, 4, 3]") && refused.contains("bring images"),
        "{refused}"
    );
    let images = ImageOptions {
        size: PerKey::All(Size {
            height: 6,
            width: 6,
        }),
        ..ImageOptions::default()
    };
    let (order, mut loader) = started(&dataset, images).unwrap();
    let batches = order.batches_of(0).unwrap().end;
    for number in 0..2 * batches {
        let batch = loader.next_batch().unwrap().unwrap();
        assert_eq!(batch.infos()[0].shape[1..], [2, 6, 6, 3]);
        let frames = batch.array(0).chunks(6 * 6 * 3);
        assert!(
            frames
                .clone()
                .all(|one| one.iter().all(|&value| value == one[0]))
        );
        let is_small = |one: &[u8]| one[0] >= 100;
        let expected = number < batches;
        assert!(
            frames.clone().all(|one| is_small(one) == expected),
            "{number}"
        );
        assert!(
            batch
                .samples()
                .iter()
                .all(|one| one.variant == u32::from(!expected))
        );
    }
}

#[test]
fn the_events_of_a_variant_are_those_of_its_stream() {
    let (_folder, dataset) = recorded();
    for row in 0..dataset.len() {
        let episode = dataset.episode(row).unwrap();
        let protected = episode.read_protected().unwrap();
        let mut seen: Vec<_> = protected
            .iter()
            .map(|one| (one.start_ns, one.end_ns))
            .collect();
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert!(all > 0 && seen.len() == all, "{protected:?}");
    }
}
