//! Which images a device decodes, and which the CPU decodes for it: a share of the pages, drawn by hash.
//!
//! ```text
//! draw(page) 0 ─────────────── share ─────────────── 1
//!              the device               the CPU            "gpu": 1   "auto": 1/64, or what their speeds ask for
//! ```
//!
//! With `decode="auto"` the CPU decodes nearly everything until the training loop waits; the device gets enough to be measured.
//! Then each gets the share that it can decode in the same time, from what both took for the first images.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kino_codec::{VideoCoding, VideoStream};
use kino_dataset::Size;
use kino_sync::Mutex;
use serde::{Deserialize, Serialize};

use super::cache::EpisodeKey;

/// What decodes the JPEG images and video of batches on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decode {
    /// The CPU.
    #[default]
    Cpu,
    /// The device.
    Gpu,
    /// The CPU, and the device too if the training loop waits.
    Auto,
}

/// The share of images that a device decodes.
#[derive(Debug)]
pub struct GpuShare {
    decode: Decode,
    /// Threads of the CPU that decode.
    threads: usize,
    /// Draws below it are the device's; `u64::MAX` is all of them.
    below: AtomicU64,
    waits: Mutex<Waiting>,
    /// What there is for the device to decode.
    needs: GpuNeeds,
    /// Video that the device does not decode; few.
    refused: Mutex<Vec<(VideoCoding, Option<Size>)>>,
    /// Whether there is some.
    refuses: AtomicBool,
}

/// What streams there are that a device may decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuNeeds {
    /// Images that are stored as JPEG.
    pub jpeg: bool,
    /// Video.
    pub video: bool,
}

/// What the training loop waited for lately.
#[derive(Debug, Default)]
struct Waiting {
    batches: u32,
    waited_s: f64,
    total_s: f64,
}

/// What an image takes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecodeTimes {
    /// One core of the CPU.
    pub cpu_s: f64,
    /// The device.
    pub gpu_s: f64,
}

/// What `Decode::Auto` begins with: one page of 64.
const MEASURED: u64 = u64::MAX / 64;

/// Batches that are looked at together.
const LOOK: u32 = 20;

/// Above this fraction of the time, waits are more than noise.
const MOST_WAIT: f64 = 0.02;

impl GpuShare {
    /// What holds from the start.
    pub(crate) fn new(decode: Decode, threads: usize, needs: GpuNeeds) -> Self {
        let below = match decode {
            Decode::Cpu => 0,
            Decode::Gpu => u64::MAX,
            Decode::Auto => MEASURED,
        };
        Self {
            decode,
            threads,
            below: AtomicU64::new(below),
            waits: Mutex::default(),
            needs,
            refused: Mutex::default(),
            refuses: AtomicBool::new(false),
        }
    }

    /// What decodes.
    pub fn decode(&self) -> Decode {
        self.decode
    }

    /// What there is for the device to decode.
    pub fn needs(&self) -> GpuNeeds {
        self.needs
    }

    /// From now on the CPU decodes such video: at this size, or at all.
    pub fn refuse_video(&self, coding: VideoCoding, size: Option<Size>) {
        let mut refused = self.refused.lock();
        if !refused.contains(&(coding, size)) {
            refused.push((coding, size));
        }
        self.refuses.store(true, Ordering::Release);
    }

    /// Whether the device decodes such video, as far as is known.
    pub(crate) fn has_video(&self, coding: VideoCoding, size: Size) -> bool {
        let is_refused = |one: &(VideoCoding, Option<Size>)| {
            one.0 == coding && one.1.is_none_or(|refused| refused == size)
        };
        VideoStream::has(coding)
            && !(self.refuses.load(Ordering::Acquire) && self.refused.lock().iter().any(is_refused))
    }

    /// Whether it changes with what the training loop waits for.
    pub fn follows_waits(&self) -> bool {
        self.decode == Decode::Auto
    }

    /// Whether the device decodes the page with this draw.
    pub(crate) fn has(&self, draw: u64) -> bool {
        let below = self.below.load(Ordering::Relaxed);
        below == u64::MAX || draw < below
    }

    /// The share of images that the device decodes, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn fraction(&self) -> f64 {
        self.below.load(Ordering::Relaxed) as f64 / u64::MAX as f64
    }

    /// The training loop waited so long for a batch, of so much time since it asked for the last. With `Decode::Auto`, the
    /// device gets its share once waits are more than noise and it is known what an image takes; it keeps it.
    pub fn waited(&self, waited_s: f64, total_s: f64, times: impl FnOnce() -> Option<DecodeTimes>) {
        if !self.follows_waits() {
            return;
        }
        let mut waits = self.waits.lock();
        waits.batches += 1;
        waits.waited_s += waited_s;
        waits.total_s += total_s;
        if waits.batches < LOOK {
            return;
        }
        let Waiting {
            waited_s, total_s, ..
        } = std::mem::take(&mut *waits);
        if waited_s > MOST_WAIT * total_s
            && self.below.load(Ordering::Relaxed) == MEASURED
            && let Some(times) = times()
        {
            self.below
                .store(share_of(times, self.threads), Ordering::Relaxed);
        }
    }
}

/// What lets both end at the same time.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share from 0 to 1, of all draws"
)]
fn share_of(DecodeTimes { cpu_s, gpu_s }: DecodeTimes, threads: usize) -> u64 {
    let (cpu, gpu) = (threads as f64 / cpu_s, 1.0 / gpu_s);
    let share = gpu / (gpu + cpu);
    if share.is_finite() {
        (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64
    } else {
        0
    }
}

/// A number that is evenly spread over pages, and the same for a page in every run: by episode, stream and page.
pub(crate) fn page_draw(key: EpisodeKey, position: usize, page: u32) -> u64 {
    let EpisodeKey {
        source,
        variant,
        episode,
    } = key;
    let words = [source, variant, episode].map(u64::from);
    let places = [position as u64, u64::from(page)];
    // SplitMix64, once for each word.
    words.into_iter().chain(places).fold(0, |state, word| {
        let mut mixed = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With two threads, the device is three times as fast as the CPU.
    const TIMES: DecodeTimes = DecodeTimes {
        cpu_s: 0.006,
        gpu_s: 0.001,
    };

    fn draws() -> Vec<u64> {
        let key = EpisodeKey {
            source: 0,
            variant: 0,
            episode: 5,
        };
        (0..4000).map(|page| page_draw(key, 1, page)).collect()
    }

    fn device(share: &GpuShare) -> usize {
        draws().into_iter().filter(|&draw| share.has(draw)).count()
    }

    #[test]
    fn the_cpu_or_the_device_decodes_everything_if_the_user_says_so() {
        for (decode, wanted) in [(Decode::Cpu, 0), (Decode::Gpu, 4000)] {
            let share = GpuShare::new(decode, 2, GpuNeeds::default());
            (0..100).for_each(|_| share.waited(1.0, 1.0, || Some(TIMES)));
            assert_eq!(device(&share), wanted);
        }
    }

    #[test]
    fn auto_gives_the_device_its_share_once_the_loop_waits() {
        let share = GpuShare::new(Decode::Auto, 2, GpuNeeds::default());
        let few = device(&share);
        assert!((30..100).contains(&few), "{few}");
        (0..100).for_each(|_| share.waited(0.01, 1.0, || Some(TIMES)));
        assert_eq!(device(&share), few, "less than noise");
        (0..19).for_each(|_| share.waited(0.5, 1.0, || Some(TIMES)));
        assert_eq!(device(&share), few, "too few batches");
        share.waited(0.5, 1.0, || None);
        assert_eq!(device(&share), few, "nothing is known of the device");
        (0..20).for_each(|_| share.waited(0.5, 1.0, || Some(TIMES)));
        assert!((share.fraction() - 0.75).abs() < 1e-9);
        let count = device(&share);
        assert!((2900..3100).contains(&count), "{count}");
        // It stays, so that a page is decoded by the same from then on.
        (0..20).for_each(|_| {
            share.waited(0.5, 1.0, || {
                Some(DecodeTimes {
                    cpu_s: 1.0,
                    ..TIMES
                })
            })
        });
        assert_eq!(device(&share), count);
    }

    #[test]
    fn video_that_the_device_refuses_is_the_cpus() {
        let size = |height| Size { height, width: 64 };
        let share = GpuShare::new(Decode::Gpu, 2, GpuNeeds::default());
        let has = |height| VideoCoding::ALL.map(|coding| share.has_video(coding, size(height)));
        // AV1, H.264, HEVC, VP9, MPEG-4.
        assert_eq!(has(48), [false, true, true, false, false]);
        share.refuse_video(VideoCoding::H264, Some(size(48)));
        assert_eq!(has(48), [false, false, true, false, false]);
        assert_eq!(has(50), [false, true, true, false, false]);
        share.refuse_video(VideoCoding::Hevc, None);
        assert_eq!(has(50), [false, true, false, false, false]);
    }

    #[test]
    fn never_change_the_draw_of_a_page() {
        assert_eq!(
            draws()[..2],
            [3_085_368_601_651_615_277, 15_095_494_680_085_177_478]
        );
    }
}
