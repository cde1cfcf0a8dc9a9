//! Random ranges of one object, read by this crate and by the stock client of `object_store`: for `bench/remote.py`.
//!
//! `remote_reads ours|stock http://host/folder KEY READS THREADS` prints wall time, percentiles and what was counted, as
//! JSON. Both read the same ranges of 256 KiB, and each range is compared with a checksum of its bytes from a first,
//! fault-free pass if `CHECK` names a local copy of the object.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kino_storage::{Location, open};
use object_store::{ClientOptions, ObjectStoreExt as _};

const BYTES: u64 = 256 << 10;

type Read = Arc<dyn Fn(std::ops::Range<u64>) -> Result<bytes::Bytes, String> + Send + Sync>;

#[expect(clippy::print_stdout, reason = "an example")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, client, url, key, reads, threads] = arguments.as_slice() else {
        return Err("usage: remote_reads ours|stock URL KEY READS THREADS".into());
    };
    let (reads, threads): (usize, usize) = (reads.parse()?, threads.parse()?);
    let location = Location::parse(Path::new(url))?;
    let storage = open(&location)?;
    let size = storage.size(key)?;
    let copy = std::env::var_os("CHECK").map(fs::read).transpose()?;
    let read: Read = match client.as_str() {
        "stock" => stock(url, key)?,
        _ => {
            let (storage, key) = (Arc::clone(&storage), key.clone());
            Arc::new(move |range| {
                storage
                    .read_range(&key, range)
                    .map_err(|error| error.to_string())
            })
        }
    };
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let times = Mutex::new(Vec::new());
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed) as u64;
                    if number >= reads as u64 {
                        return;
                    }
                    let start = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (size - BYTES);
                    let from = Instant::now();
                    let got = read(start..start + BYTES);
                    let range = usize::try_from(start).unwrap_or(0)
                        ..usize::try_from(start + BYTES).unwrap_or(0);
                    let is_right = got.is_ok_and(|bytes| {
                        copy.as_ref()
                            .is_none_or(|copy| copy.get(range) == Some(&bytes[..]))
                    });
                    failed.fetch_add(usize::from(!is_right), Ordering::Relaxed);
                    if let Ok(mut times) = times.lock() {
                        times.push(from.elapsed());
                    }
                }
            });
        }
    });
    let wall = began.elapsed().as_secs_f64();
    let mut times = times.into_inner()?;
    times.sort_unstable();
    let at = |share: usize| {
        times
            .get((times.len() - 1) * share / 100)
            .map_or(0.0, Duration::as_secs_f64)
    };
    let report = storage.requests().map(serde_json::to_value).transpose()?;
    println!(
        "{}",
        serde_json::json!({"client": client, "wall_s": wall, "p50_s": at(50), "p99_s": at(99), "longest_s": at(100),
            "failed": failed.into_inner(), "report": report})
    );
    Ok(())
}

/// The stock client, with its own settings.
fn stock(url: &str, key: &str) -> Result<Read, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let options = ClientOptions::new().with_allow_http(true);
    let store = {
        let _inside = runtime.enter();
        object_store::http::HttpBuilder::new()
            .with_url(url)
            .with_client_options(options)
            .build()?
    };
    let path = object_store::path::Path::parse(key)?;
    Ok(Arc::new(move |range| {
        runtime
            .block_on(store.get_range(&path, range))
            .map_err(|error| error.to_string())
    }))
}
