//! Puts pages of video on the device.
//!
//! ```text
//! pages of a codec and size ──▶ a session per engine, a packet each in turn ──▶ frames shown ──mapped──▶ NV12 ──kernel──▶ RGB ──▶ resized
//!                                   └─ refused ──▶ the CPU ──▶ copied
//! ```
//!
//! Of each kind the first page is decoded by the CPU too. One value that differs, and the CPU decodes all of that kind: the pixels of
//! a batch do not depend on what decoded them.

use std::time::Instant;

use super::image::kept_size_of;
use super::job::{Job, damaged};
use super::{Comparison, Images, VideoReport};
use crate::error::{CudaError, Result};
use crate::video::{Kind, Sessions, VideoPage};

/// So many frames of the first page are compared.
const COMPARED: usize = 8;

/// The first page is decoded so many times per engine, to see how long a frame takes when all work.
const TRIALS: usize = 2;

/// What images need for video.
#[derive(Debug)]
pub(super) struct Video {
    pub(super) sessions: Sessions,
    pub(super) report: VideoReport,
    on_refusal: super::OnRefusal,
}

impl Video {
    pub(super) fn new(sessions: Sessions, on_refusal: super::OnRefusal) -> Self {
        Self {
            sessions,
            report: VideoReport::default(),
            on_refusal,
        }
    }

    /// Refuses all pages of a kind from now on.
    fn refuse(&mut self, kind: &Kind, why: &str) {
        if self.sessions.refuse(kind, why) {
            self.give_up(kind, why);
        }
    }

    fn give_up(&mut self, kind: &Kind, why: &str) {
        self.report.note = Some(why.to_owned());
        (self.on_refusal.0)(kind.codec, kind.size);
    }
}

impl Images {
    /// Puts pages of video on the device, of which no frame is there yet.
    pub(super) fn place_videos(&mut self, mut pages: Vec<&dyn VideoPage>) -> Result<()> {
        let key = |page: &&dyn VideoPage| (page.codec() as usize, page.stored());
        pages.sort_by_key(key);
        for pages in pages.chunk_by(|a, b| key(a) == key(b)) {
            // Taken out, because images are changed while it works.
            let Some(mut video) = self.video.take() else {
                self.report.refused += self.decode_pages_on_cpu(pages)?;
                continue;
            };
            let placed = self.place_kind(&mut video, pages);
            let (decoders, bytes) = video.sessions.decoders();
            video.report.decoders = decoders;
            video.report.decoder_bytes = bytes;
            self.video = Some(video);
            placed?;
        }
        Ok(())
    }

    fn place_kind(&mut self, video: &mut Video, pages: &[&dyn VideoPage]) -> Result<()> {
        let (codec, size) = (pages[0].codec(), pages[0].stored());
        let mut kind = match video.sessions.kind(codec, size) {
            Ok(kind) => kind,
            Err(why) => {
                (video.on_refusal.0)(codec, size);
                video.report.note = Some(why);
                video.report.refused += self.decode_pages_on_cpu(pages)?;
                return Ok(());
            }
        };
        video.report.engines = kind.caps.engines;
        let mut rest = pages;
        if !video.sessions.is_verified(&kind) {
            self.verify(video, &mut kind, pages[0])?;
            rest = &pages[1..];
            if video.sessions.kind(codec, size).is_err() {
                video.report.refused += self.decode_pages_on_cpu(rest)?;
                return Ok(());
            }
        }
        let started = Instant::now();
        let jobs = self.decode_pages(video, &mut kind, rest)?;
        video.report.decode_s += started.elapsed().as_secs_f64();
        jobs.into_iter()
            .zip(rest)
            .try_for_each(|(job, page)| self.settle(video, &kind, *page, job))
    }

    /// Keeps the frames of a page that was decoded; decodes it on the CPU otherwise.
    fn settle(
        &mut self,
        video: &mut Video,
        kind: &Kind,
        page: &dyn VideoPage,
        job: Result<Job<'_>, String>,
    ) -> Result<()> {
        let why = match job {
            Ok(job) if job.refusal.is_none() => {
                let memories: Option<Vec<_>> = job.memories.into_iter().collect();
                if let Some(memories) = memories {
                    video.sessions.note(kind, None);
                    video.report.decoded += memories.len() as u64;
                    for (kept, memory) in memories.into_iter().enumerate() {
                        // Another sender was faster: gathering says so.
                        let _taken = page.place(kept).set(memory);
                    }
                    return Ok(());
                }
                "frames are missing".to_owned()
            }
            Ok(job) => job
                .refusal
                .map_or_else(String::new, |refusal| refusal.to_text()),
            Err(why) => why,
        };
        if video.sessions.note(kind, Some(&why)) {
            video.give_up(kind, &why);
        }
        video.report.note.get_or_insert(why);
        video.report.refused += self.decode_pages_on_cpu(&[page])?;
        Ok(())
    }

    /// Decodes the first page of a kind on the device and on the CPU, and refuses the kind if they differ; then a few times more, for
    /// the time it takes.
    fn verify(&mut self, video: &mut Video, kind: &mut Kind, page: &dyn VideoPage) -> Result<()> {
        let mut job = self.decode_pages(video, kind, &[page])?.remove(0);
        let frames = page.frames().len();
        if let Ok(one) = &mut job
            && one.refusal.is_none()
        {
            let started = Instant::now();
            let pixels = page.decode().map_err(|what| CudaError::Image { what })?;
            let cpu_s = started.elapsed().as_secs_f64() / frames as f64;
            let (images, largest_difference) = self.page_difference(one, &pixels)?;
            if largest_difference > 0 {
                one.refusal = Some(damaged("the GPU's pixels are not the CPU's"));
                video.refuse(kind, "the GPU's pixels are not the CPU's");
            } else {
                video.sessions.verified(kind);
            }
            let gpu_s = match largest_difference {
                0 => self.time(video, kind, page)? / frames as f64,
                _ => f64::INFINITY,
            };
            video.report.compared = Some(Comparison {
                images,
                largest_difference,
                cpu_s,
                gpu_s,
            });
        }
        self.settle(video, kind, page, job)
    }

    /// How many frames of a page were compared, and the largest difference.
    fn page_difference(&mut self, job: &Job<'_>, pixels: &[u8]) -> Result<(usize, u8)> {
        let (height, width) = kept_size_of(job.page.resize(), job.page.stored());
        let frame_bytes = height * width * 3;
        if pixels.len() != frame_bytes * job.kept.len() {
            return Err(CudaError::Image {
                what: format!("{} bytes are not the frames of a page", pixels.len()),
            });
        }
        let (mut images, mut largest) = (0, 0);
        // The last frames depend on all others.
        let frames = pixels.chunks_exact(frame_bytes).zip(&job.memories);
        for (pixels, memory) in frames.rev().take(COMPARED) {
            let Some(memory) = memory else { continue };
            let mut found = vec![0; frame_bytes];
            let stream = self.stream.handle();
            self.device
                .copy_from(&mut found, memory.address(), stream)?;
            self.synchronize()?;
            let differences = found.iter().zip(pixels).map(|(a, b)| a.abs_diff(*b));
            largest = largest.max(differences.max().unwrap_or(0));
            images += 1;
        }
        Ok((images, largest))
    }

    /// Seconds per page, if all engines work.
    fn time(&mut self, video: &mut Video, kind: &mut Kind, page: &dyn VideoPage) -> Result<f64> {
        let copies = kind.caps.engines * TRIALS;
        let mut seconds = 0.0;
        // The first time makes decoders.
        for _ in 0..2 {
            let mut jobs: Vec<_> = (0..copies).map(|_| Job::new(page)).collect();
            jobs.iter_mut()
                .flatten()
                .for_each(|job| job.is_trial = true);
            let started = Instant::now();
            self.decode_jobs(video, kind, &mut jobs)?;
            self.synchronize()?;
            seconds = started.elapsed().as_secs_f64() / copies.max(1) as f64;
        }
        Ok(seconds)
    }

    fn decode_pages<'b>(
        &mut self,
        video: &mut Video,
        kind: &mut Kind,
        pages: &[&'b dyn VideoPage],
    ) -> Result<Vec<Result<Job<'b>, String>>> {
        let mut jobs: Vec<_> = pages.iter().map(|page| Job::new(*page)).collect();
        self.decode_jobs(video, kind, &mut jobs)?;
        Ok(jobs)
    }

    /// Puts pages on the device that it did not decode; how many frames.
    pub(super) fn decode_pages_on_cpu(&mut self, pages: &[&dyn VideoPage]) -> Result<u64> {
        let mut frames = 0;
        for page in pages {
            let pixels = page.decode().map_err(|what| CudaError::Image { what })?;
            let kept = page.frames().len();
            let (height, width) = kept_size_of(page.resize(), page.stored());
            let frame_bytes = height * width * 3;
            if frame_bytes == 0 || pixels.len() != frame_bytes * kept {
                return Err(CudaError::Image {
                    what: format!(
                        "{} bytes are not {kept} frames of {height} × {width} pixels",
                        pixels.len()
                    ),
                });
            }
            for (idx, pixels) in pixels.chunks_exact(frame_bytes).enumerate() {
                let memory = self.pool.take((height, width))?;
                let stream = self.stream.handle();
                self.device.copy_to(memory.address(), pixels, stream)?;
                let _taken = page.place(idx).set(memory);
            }
            self.copied.push(pixels);
            frames += kept as u64;
        }
        Ok(frames)
    }
}
