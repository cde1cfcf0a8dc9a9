//! Reads every frame of recordings and says how fast: `read_speed FILE…`.
#![allow(
    clippy::print_stdout,
    reason = "a measurement for people, printed where they run it"
)]

use std::path::Path;
use std::time::Instant;

use kino_import::{FrameBuf, ImportOptions, Result, block_frames, open};

fn main() -> Result<()> {
    let options = ImportOptions {
        rate_hz: Some(20.0),
        ..ImportOptions::default()
    };
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let source = open(Path::new(&path), &options)?;
        let opened = start.elapsed();
        let (mut frames, mut bytes) = (0, 0);
        for (episode, spec) in source.episodes().iter().enumerate() {
            for (stream, spec) in spec.streams.iter().enumerate() {
                let mut first = 0;
                while first < spec.frames {
                    let last = spec.frames.min(first + block_frames(&spec.frame));
                    bytes += match source.read(episode, stream, first..last)? {
                        FrameBuf::Values(values) => values.len(),
                        FrameBuf::Bytes(frames) => frames.iter().map(Vec::len).sum(),
                    };
                    first = last;
                }
                frames += spec.frames;
            }
        }
        let read = (start.elapsed() - opened).as_secs_f64();
        let megabytes = bytes as f64 / 1e6;
        println!(
            "{path}: opened in {:.1} ms, {frames} frames, {megabytes:.1} MB in {read:.3} s, {:.0} MB/s",
            opened.as_secs_f64() * 1e3,
            megabytes / read
        );
    }
    Ok(())
}
