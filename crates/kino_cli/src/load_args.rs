//! The options of commands that run a loader: what a training loop asks for.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use kino_advisor::{Subject, Workload};
use kino_dataset::Dataset;
use kino_loader::{CpuShare, ImageDtype, Size};

/// What a training loop asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// The dataset's folder
    pub(crate) dataset: PathBuf,
    /// Samples per batch
    #[arg(long, value_name = "N", default_value_t = 64)]
    batch_size: u32,
    /// Frames of a stream by steps around the anchor, the end left out: wrist=-9:1 (may be given several times); every
    /// stream at the anchor otherwise
    #[arg(long, value_name = "STREAM=FROM:TO", value_parser = window)]
    window: Vec<(String, Range<i32>)>,
    /// Images are resized to this
    #[arg(long, value_name = "HxW", value_parser = size)]
    image_size: Option<Size>,
    /// The numbers of images: uint8, float32, float16 or bfloat16
    #[arg(long, value_name = "NAME", default_value = "uint8")]
    image_dtype: String,
    /// Decoded bytes of the episodes that are mixed at a time, such as 1GB; `none` mixes everything
    #[arg(long, value_name = "BYTES", default_value = "1GB")]
    pool: String,
    /// The budget of decoded frames, such as 4GB; two pools and a bit unless given
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    /// Threads that decode; all cores but one unless given
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Batches ahead; chosen by what is measured unless given
    #[arg(long, value_name = "N")]
    prefetch: Option<usize>,
    /// The most cores that the loader may use, such as 2.5
    #[arg(long, value_name = "CORES")]
    cpu: Option<f64>,
    /// Where the order's randomness comes from
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl LoadArgs {
    /// The loader that is asked for.
    pub(crate) fn subject(&self) -> Result<Subject> {
        let dataset = Dataset::open(&self.dataset)?;
        let workload = Workload {
            windows: self.window.clone(),
            batch: self.batch_size,
            seed: self.seed,
            pool_bytes: match self.pool.as_str() {
                "none" => None,
                given => Some(bytes(given).context("--pool")?),
            },
            memory_bytes: self.memory,
            threads: self.threads,
            prefetch: self.prefetch,
            cpu: self.cpu.map(CpuShare::Cores),
            image_size: self.image_size,
            image_number: number(&self.image_dtype)?,
        };
        Ok(workload.subject(&dataset)?)
    }
}

fn number(name: &str) -> Result<ImageDtype> {
    Ok(match name {
        "uint8" => ImageDtype::U8,
        "float32" => ImageDtype::F32,
        "float16" => ImageDtype::F16,
        "bfloat16" => ImageDtype::Bf16,
        other => bail!("--image-dtype {other}: there are uint8, float32, float16 and bfloat16"),
    })
}

/// Reads `wrist=-9:1`.
fn window(text: &str) -> Result<(String, Range<i32>)> {
    let wrong = || format!("`{text}`: a window looks like wrist=-9:1, from step -9 to step 0");
    let (stream, steps) = text.split_once('=').with_context(wrong)?;
    let (from, to) = steps.split_once(':').with_context(wrong)?;
    let steps = from.trim().parse().with_context(wrong)?..to.trim().parse().with_context(wrong)?;
    if steps.is_empty() || steps.len() > 1 << 16 {
        bail!("{}; it has to have 1 to 65536 steps", wrong());
    }
    Ok((stream.to_owned(), steps))
}

/// Reads `224x224`.
fn size(text: &str) -> Result<Size> {
    let sides = text
        .split_once('x')
        .with_context(|| format!("`{text}`: a size looks like 224x224"))?;
    Ok(Size {
        height: sides.0.parse()?,
        width: sides.1.parse()?,
    })
}

/// Reads `1GB`, `512MB` or a number of bytes.
pub(crate) fn bytes(text: &str) -> Result<u64> {
    let wrong = || format!("`{text}`: a number of bytes looks like 512MB or 4GB");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => bail!(wrong()),
    };
    let number: u64 = digits.trim().parse().with_context(wrong)?;
    number
        .checked_mul(unit)
        .filter(|&bytes| bytes > 0)
        .with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_windows_sizes_and_bytes() {
        assert_eq!(
            window("obs/wrist=-9:1").unwrap(),
            ("obs/wrist".to_owned(), -9..1)
        );
        assert_eq!(
            size("480x640").unwrap(),
            Size {
                height: 480,
                width: 640
            }
        );
        assert_eq!(bytes("2GB").unwrap(), 2_000_000_000);
        assert_eq!(bytes("77").unwrap(), 77);
        for wrong in ["wrist", "wrist=1", "wrist=3:3", "wrist=0:99999999"] {
            assert!(
                window(wrong)
                    .unwrap_err()
                    .to_string()
                    .contains("wrist=-9:1")
            );
        }
        for wrong in ["", "GB", "-1MB", "0", "1TiB", "99999999999GB"] {
            assert!(
                bytes(wrong).unwrap_err().to_string().contains("512MB"),
                "{wrong}"
            );
        }
    }
}
