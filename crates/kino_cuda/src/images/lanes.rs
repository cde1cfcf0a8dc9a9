//! Decodes pages of one kind: a lane per decoder, a packet each in turn, so that all engines work at once.
//!
//! ```text
//! queue of pages ──┬─▶ lane 0: session, page 3 at packet 7 ──┬─▶ enough wait: mapped ─▶ NV12 to RGB ─▶ resized, or in place
//!                  └─▶ lane 1: session, page 4 at packet 6 ──┘
//! ```

use std::collections::VecDeque;

use super::Images;
use super::image::kept_size_of;
use super::job::{Job, damaged};
use super::place::grown;
use super::video::Video;
use crate::error::{CudaError, Result};
use crate::ffi::{Frame, IMAGES, Nv12Job};
use crate::video::{Kind, Mapped, Refusal, Session};

/// A session, and the page that it is fed: its number, and the next packet.
struct Lane {
    session: Session,
    turn: Option<(usize, usize)>,
}

impl Images {
    /// Decodes pages of one kind, each to memory of its own or to a refusal.
    pub(super) fn decode_jobs(
        &mut self,
        video: &mut Video,
        kind: &mut Kind,
        jobs: &mut [Result<Job<'_>, String>],
    ) -> Result<()> {
        let mut jobs: Vec<&mut Job<'_>> = jobs.iter_mut().flatten().collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let mut queue: VecDeque<usize> = (0..jobs.len()).collect();
        let sessions = match video.sessions.take(kind, jobs.len()) {
            Ok(sessions) => sessions,
            Err(error) => {
                let refusal = Refusal::from(error);
                jobs.iter_mut()
                    .for_each(|job| job.refusal = Some(refusal.clone()));
                return Ok(());
            }
        };
        let lane = |session| Lane {
            session,
            turn: None,
        };
        let mut lanes: Vec<Lane> = sessions.into_iter().map(lane).collect();
        while self.round(video, kind, (&mut lanes, &mut jobs, &mut queue))? {}
        for lane in &mut lanes {
            lane.session.release()?;
        }
        video
            .sessions
            .put(lanes.into_iter().map(|lane| lane.session));
        Ok(())
    }

    /// A step of each lane; whether there is more to do.
    fn round(
        &mut self,
        video: &mut Video,
        kind: &mut Kind,
        (lanes, jobs, queue): (&mut Vec<Lane>, &mut [&mut Job<'_>], &mut VecDeque<usize>),
    ) -> Result<bool> {
        let (mut is_busy, mut at) = (false, 0);
        while at < lanes.len() {
            let count = lanes.len();
            let lane = &mut lanes[at];
            let stepped = self.step(lane, jobs, queue)?;
            is_busy |= stepped.is_busy;
            at += 1;
            let Some((number, refusal)) = stepped.refused else {
                continue;
            };
            // Another page may have been under way.
            let begun = lane.turn.take().map(|(page, _)| page);
            queue.extend(begun.filter(|&page| page != number));
            self.abandon(lane, jobs)?;
            if matches!(refusal, Refusal::NoDecoder(_)) && count > 1 {
                lanes.remove(at - 1);
                at -= 1;
                video.sessions.limit(kind, lanes.len());
                queue.push_front(number);
                continue;
            }
            if retries(video, kind, jobs[number], refusal) {
                lane.turn = Some((number, 0));
            }
            lane.session = video.sessions.open(kind)?;
        }
        Ok(is_busy)
    }

    /// The next packet of a lane's page, or of the next page; frames are mapped if enough wait, or nothing else is left.
    fn step(
        &mut self,
        lane: &mut Lane,
        jobs: &mut [&mut Job<'_>],
        queue: &mut VecDeque<usize>,
    ) -> Result<Stepped> {
        lane.turn = lane.turn.or_else(|| queue.pop_front().map(|job| (job, 0)));
        if lane.session.is_full() || (lane.turn.is_none() && lane.session.waiting() > 0) {
            if let Some(refused) = self.convert(lane, jobs)? {
                return Ok(Stepped::refused(refused));
            }
            return Ok(Stepped::busy());
        }
        let Some((number, packet)) = lane.turn else {
            return Ok(Stepped::default());
        };
        let job = &mut *jobs[number];
        if let Err(refusal) = feed(lane, job, number, packet) {
            return Ok(Stepped::refused((number, refusal)));
        }
        lane.turn = (packet + 1 < job.packets.packets.len()).then_some((number, packet + 1));
        Ok(Stepped::busy())
    }

    /// Maps the frames of a lane that wait longest, and makes pixels of them.
    fn convert(
        &mut self,
        lane: &mut Lane,
        jobs: &mut [&mut Job<'_>],
    ) -> Result<Option<(usize, Refusal)>> {
        match lane.session.map() {
            Err(refused) => Ok(Some(refused)),
            Ok(frames) => {
                if let Some(first) = frames.first() {
                    self.put_pixels(jobs[first.shown.page], &frames)?;
                }
                lane.session.converted()?;
                Ok(None)
            }
        }
    }

    /// Gives a lane up whose page was refused: frames of other pages that wait are converted, or their pages refused too.
    fn abandon(&mut self, lane: &mut Lane, jobs: &mut [&mut Job<'_>]) -> Result<()> {
        while lane.session.waiting() > 0 {
            let pages = lane.session.pages();
            if self.convert(lane, jobs)?.is_some() {
                for page in pages {
                    jobs[page].refusal = Some(damaged("its decoder failed"));
                }
                break;
            }
        }
        Ok(())
    }

    /// Makes pixels of frames of one page, where the page is kept.
    fn put_pixels(&mut self, job: &mut Job<'_>, frames: &[Mapped]) -> Result<()> {
        let (stored, tables) = (job.page.stored(), job.page.resize().cloned());
        let kept = kept_size_of(tables.as_ref(), stored);
        for frames in frames.chunks(IMAGES) {
            let mut to = Vec::with_capacity(frames.len());
            for frame in frames {
                let shown = job.packets.packets[frame.shown.packet].frame;
                let idx = shown.map_or(0, |shown| shown - job.kept.start);
                let place = &mut job.memories[if job.is_trial { 0 } else { idx }];
                let memory = match place {
                    Some(memory) => memory,
                    None => place.insert(self.pool.take(kept)?),
                };
                to.push(memory.address());
            }
            let Some(tables) = &tables else {
                self.to_rgb(stored, job.packets.factors, frames, &to)?;
                continue;
            };
            let frame_bytes = stored.0 * stored.1 * 3;
            let rgb = grown(&self.device, &mut self.rgb, frame_bytes * frames.len())?.address();
            let halfway: Vec<u64> = (0..frames.len() as u64)
                .map(|idx| rgb + idx * frame_bytes as u64)
                .collect();
            self.to_rgb(stored, job.packets.factors, frames, &halfway)?;
            self.resize_all(tables, stored, rgb, &to)?;
        }
        Ok(())
    }

    /// Starts to make RGB of mapped frames, each at an address with room for it.
    fn to_rgb(
        &self,
        (height, width): (usize, usize),
        factors: [i16; 6],
        frames: &[Mapped],
        to: &[u64],
    ) -> Result<()> {
        let side = |pixels: usize| {
            u32::try_from(pixels).map_err(|_| CudaError::Image {
                what: format!("{pixels} pixels are too many"),
            })
        };
        let pitch = frames.first().map_or(0, |frame| frame.pitch);
        let mut images = [Frame::default(); IMAGES];
        for ((image, frame), to) in images.iter_mut().zip(frames).zip(to) {
            *image = Frame {
                from: frame.address,
                to: *to,
            };
        }
        let job = Nv12Job {
            pitch,
            // Sides are even.
            chroma: pitch * height as u64,
            height: side(height)?,
            width: side(width)?,
            factors: factors.map(i32::from),
            images,
        };
        self.kernels.nv12(&job, frames.len(), self.stream.handle())
    }
}

/// What a step of a lane did.
#[derive(Default)]
struct Stepped {
    is_busy: bool,
    /// A page, and why.
    refused: Option<(usize, Refusal)>,
}

impl Stepped {
    fn busy() -> Self {
        Self {
            is_busy: true,
            refused: None,
        }
    }

    fn refused(refused: (usize, Refusal)) -> Self {
        Self {
            is_busy: true,
            refused: Some(refused),
        }
    }
}

/// Parses a packet, and ends its group behind the last.
fn feed(lane: &mut Lane, job: &mut Job<'_>, number: usize, packet: usize) -> Result<(), Refusal> {
    if packet == 0 {
        (job.last, job.shown, job.refusal) = (None, 0, None);
    }
    let mut parse = |job: &mut Job<'_>, is_end: bool| {
        let data = (!is_end).then(|| (job.packet(packet), packet));
        let displayed = lane.session.feed(data)?;
        job.check_order(&displayed)?;
        lane.session.keep(number, |packet| job.is_kept(packet));
        Ok::<(), Refusal>(())
    };
    parse(job, false)?;
    if job.ends_group(packet) {
        parse(job, true)?;
    }
    if packet + 1 == job.packets.packets.len() {
        job.check_count()?;
    }
    Ok(())
}

/// Whether a page that was refused is tried again, with another session.
fn retries(video: &mut Video, kind: &mut Kind, job: &mut Job<'_>, refusal: Refusal) -> bool {
    job.attempts += 1;
    let again = match refusal {
        Refusal::Session => job.attempts < 3,
        Refusal::TooFar => video.sessions.keep_close(kind) || job.attempts < 3,
        Refusal::NoDecoder(_) | Refusal::Unsupported(_) | Refusal::Damaged(_) => false,
    };
    if !again {
        job.refusal = Some(refusal);
    }
    again
}
