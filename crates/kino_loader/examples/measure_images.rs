//! The cost per pixel from the cache into the batch, for each layout and dtype, compared with a copy and a table.
//!
//! ```text
//! cargo run --release -p kino_loader --example measure_images
//! ```
//!
//! Synthetic images of 480 × 640, all in the cache, one thread; the best of several epochs of the collate stage.
//! *Table* looks up every float, 256 per channel. Every value of the first epoch is compared with the formula.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a command-line tool; any error ends it"
)]

use std::time::Instant;

use half::{bf16, f16};
use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, EpisodeInfo, Kind, Request, Samples, Selection, Start,
    StreamInfo, Times, WriterOptions,
};
use kino_loader::{
    Batch, ImageDtype, ImageOptions, Layout, Loader, LoaderOptions, Normal, Order, PerKey,
    Settings, Size, Source, Stage,
};

const HEIGHT: usize = 480;
const WIDTH: usize = 640;
const FRAMES: usize = 64;
const BATCH: u32 = 8;
const ROUNDS: usize = 12;

const OFFSET: [f32; 3] = [0.485, 0.456, 0.406];
const SCALE: [f32; 3] = [0.229, 0.224, 0.225];

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let frames = images();
    let windows = write(folder.path(), &frames);
    println!("{:8} {:4} {:>12}", "dtype", "", "ns per pixel");
    copies(&frames);
    for dtype in [
        ImageDtype::U8,
        ImageDtype::F32,
        ImageDtype::F16,
        ImageDtype::Bf16,
    ] {
        for layout in [Layout::Hwc, Layout::Chw] {
            let ns = collate(&windows, &frames, dtype, layout);
            let (dtype, layout) = (format!("{dtype:?}"), format!("{layout:?}"));
            println!("{dtype:8} {layout:4} {ns:12.2}");
        }
    }
    for size in [240, 224, 128] {
        println!(
            "resized to {size} × {size}: {:.2} ns per stored pixel",
            resize(&windows, size)
        );
    }
}

/// Moving images that contain all byte values.
fn images() -> Vec<u8> {
    let value = |idx: usize| (idx * 31 + (idx / (WIDTH * 3)) * 7 + (idx >> 11)).to_le_bytes()[0];
    (0..FRAMES * HEIGHT * WIDTH * 3).map(value).collect()
}

fn write(folder: &std::path::Path, frames: &[u8]) -> Samples {
    let path = folder.join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, WriterOptions::default()).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    let info = StreamInfo {
        name: "cam".to_owned(),
        kind: Kind::Image,
        frame: FrameType::values(Dtype::U8, &[HEIGHT, WIDTH, 3]).unwrap(),
        frames: FRAMES as u64,
        times: Times::Rate {
            rate_hz: 20.0,
            start_ns: 0,
        },
        arrival: Arrival::Values,
        shared: None,
    };
    episode.stream(&info).unwrap();
    episode.push(frames).unwrap();
    episode.finish().unwrap();
    writer.commit("images").unwrap();
    let request =
        r#"{"anchor": {"stream": "cam"}, "windows": [{"stream": "cam", "at": {"steps": [0]}}]}"#;
    let request: Request = serde_json::from_str(request).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    Samples::bind(&dataset, request, &Selection::default()).unwrap()
}

/// A copy of the bytes, and a float32 lookup table per channel: time of one thread.
fn copies(frames: &[u8]) {
    let frame_bytes = HEIGHT * WIDTH * 3;
    let mut place = vec![0; frame_bytes * 4 * BATCH as usize];
    let table = OFFSET.iter().zip(SCALE).map(|(offset, scale)| {
        let values: Vec<[u8; 4]> = (0..=255_u8)
            .map(|value| ((f32::from(value) / 255.0 - offset) / scale).to_le_bytes())
            .collect();
        <[[u8; 4]; 256]>::try_from(values).unwrap()
    });
    let table: Vec<_> = table.collect();
    let frames = || frames.chunks_exact(frame_bytes);
    let best = |mut work: Box<dyn FnMut() + '_>| {
        let each = (0..ROUNDS).map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e9 / (FRAMES * HEIGHT * WIDTH) as f64
        });
        each.fold(f64::MAX, f64::min)
    };
    let copy = best(Box::new(|| {
        for (idx, frame) in frames().enumerate() {
            let at = idx % BATCH as usize * frame_bytes;
            place[at..at + frame_bytes].copy_from_slice(frame);
        }
    }));
    println!("{:8} {:4} {copy:12.2}", "copy", "Hwc");
    let looked_up = best(Box::new(|| {
        for (idx, frame) in frames().enumerate() {
            let at = idx % BATCH as usize * frame_bytes * 4;
            let planes = place[at..at + frame_bytes * 4].chunks_exact_mut(HEIGHT * WIDTH * 4);
            for (channel, plane) in planes.enumerate() {
                let pixels = plane.as_chunks_mut::<4>().0.iter_mut();
                for (out, pixel) in pixels.zip(frame.as_chunks::<3>().0) {
                    *out = table[channel][usize::from(pixel[channel])];
                }
            }
        }
    }));
    println!("{:8} {:4} {looked_up:12.2}", "table", "Chw");
}

/// Nanoseconds per pixel in the collate stage, in the best epoch after the first.
fn collate(windows: &Samples, frames: &[u8], dtype: ImageDtype, layout: Layout) -> f64 {
    let normal = Normal {
        offset: OFFSET.map(f64::from).to_vec(),
        scale: SCALE.map(f64::from).to_vec(),
    };
    let is_float = dtype != ImageDtype::U8;
    let options = LoaderOptions {
        threads: Some(1),
        images: ImageOptions {
            layout,
            dtype,
            ..ImageOptions::default()
        },
        normal: is_float
            .then(|| ("cam".to_owned(), normal))
            .into_iter()
            .collect(),
        ..LoaderOptions::default()
    };
    let mut loader = start(windows, options);
    let mut best = f64::MAX;
    for round in 0..ROUNDS {
        let before = busy(&loader, Stage::Collate);
        for _ in 0..FRAMES / BATCH as usize {
            let batch = loader.next_batch().unwrap().unwrap();
            if round == 0 {
                check(&batch, frames, dtype, layout);
            }
        }
        if round > 0 {
            best = best.min(busy(&loader, Stage::Collate) - before);
        }
    }
    best * 1e9 / (FRAMES * HEIGHT * WIDTH) as f64
}

/// Resizing happens in the decode stage: what it adds to decoding, in nanoseconds per stored pixel.
fn resize(windows: &Samples, side: usize) -> f64 {
    let decode = |size: PerKey<Size>| {
        let each = (0..3).map(|_| {
            let options = LoaderOptions {
                threads: Some(1),
                images: ImageOptions {
                    size: size.clone(),
                    ..ImageOptions::default()
                },
                ..LoaderOptions::default()
            };
            let mut loader = start(windows, options);
            for _ in 0..FRAMES / BATCH as usize {
                loader.next_batch().unwrap().unwrap();
            }
            busy(&loader, Stage::Decode)
        });
        each.fold(f64::MAX, f64::min)
    };
    let size = Size {
        height: side,
        width: side,
    };
    (decode(PerKey::All(size)) - decode(PerKey::None)) * 1e9 / (FRAMES * HEIGHT * WIDTH) as f64
}

fn start(windows: &Samples, options: LoaderOptions) -> Loader {
    let settings = Settings {
        batch_size: BATCH,
        ..Settings::default()
    };
    let order = Order::new(Source::of(windows).unwrap(), settings).unwrap();
    Loader::start(order, vec![vec![windows.clone()]], options).unwrap()
}

fn busy(loader: &Loader, stage: Stage) -> f64 {
    let stages = loader.report().stages;
    stages.iter().find(|one| one.stage == stage).unwrap().busy_s
}

fn check(batch: &Batch, frames: &[u8], dtype: ImageDtype, layout: Layout) {
    let pixels = HEIGHT * WIDTH;
    let place_bytes = batch.array(0).len() / batch.samples().len();
    for (sample, place) in batch
        .samples()
        .iter()
        .zip(batch.array(0).chunks_exact(place_bytes))
    {
        let frame = &frames[sample.sample as usize * pixels * 3..][..pixels * 3];
        let size = place_bytes / frame.len();
        for (at, found) in place.chunks_exact(size).enumerate() {
            let (pixel, channel) = match layout {
                Layout::Hwc => (at / 3, at % 3),
                Layout::Chw => (at % pixels, at / pixels),
            };
            let value = frame[pixel * 3 + channel];
            let float = (f32::from(value) / 255.0 - OFFSET[channel]) / SCALE[channel];
            let is_right = match dtype {
                ImageDtype::U8 => found == [value],
                ImageDtype::F32 => found == float.to_le_bytes(),
                ImageDtype::F16 => found == f16::from_f32(float).to_le_bytes(),
                ImageDtype::Bf16 => found == bf16::from_f32(float).to_le_bytes(),
            };
            assert!(is_right, "value {at} of {dtype:?} {layout:?}");
        }
    }
}
