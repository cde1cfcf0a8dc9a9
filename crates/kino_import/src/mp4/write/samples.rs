//! The packets that were written, and the edit list that shows their frames at their times.

use super::super::edits::{self, Edit};
use super::super::tables::{MAX_OFFSET, MAX_SAMPLES, Stored, StoredSamples};
use super::movie::Durations;
use super::{Mp4Packet, Refusal, refused};

/// FFmpeg reads no larger packets.
const MAX_PACKET: u32 = (1 << 30) - 1;

/// The rows of all packets.
#[derive(Debug, Default)]
pub(super) struct Samples {
    stored: Vec<Stored>,
    is_shown: Vec<bool>,
    /// The decode time of the first packet; the others are counted from there.
    first_dts: i64,
}

fn cts(sample: &Stored) -> i64 {
    sample.time + i64::from(sample.delay)
}

impl Samples {
    pub(super) fn stored(&self) -> &[Stored] {
        &self.stored
    }

    /// Adds a packet that begins at byte `offset` of the file. Returns its size.
    pub(super) fn add(&mut self, packet: &Mp4Packet<'_>, offset: u64) -> Result<u32, Refusal> {
        let number = self.stored.len();
        if number == MAX_SAMPLES {
            return Err(refused(format!("more than {MAX_SAMPLES} packets")));
        }
        let at = |what: String| refused(format!("{what} (packet {number})"));
        let size = packet_size(packet.data.len()).map_err(at)?;
        let delay = delay(packet).map_err(at)?;
        let time = self.time(packet.dts).map_err(at)?;
        if number == 0 {
            self.first_dts = packet.dts;
        }
        self.stored.push(Stored {
            offset,
            size,
            time,
            delay,
            is_key: packet.is_key,
        });
        self.is_shown.push(packet.is_shown);
        Ok(size)
    }

    /// A decode time, counted from the first packet's.
    fn time(&self, dts: i64) -> Result<i64, String> {
        let Some(last) = self.stored.last() else {
            return Ok(0);
        };
        // The sum is a time that was given.
        let before = self.first_dts.saturating_add(last.time);
        match dts.checked_sub(before) {
            Some(step) if (1..=MAX_OFFSET.into()).contains(&step) => Ok(last.time + step),
            _ if dts <= before => Err(format!(
                "a packet that is decoded at {dts} after one at {before}; decode times must increase"
            )),
            _ => Err(format!(
                "a packet that is decoded at {dts} after one at {before}, more than {MAX_OFFSET} units later; use a \
                 smaller timescale"
            )),
        }
    }

    /// The rows of the packets whose frames are shown.
    fn shown(&self) -> impl Iterator<Item = &Stored> {
        let all = self.stored.iter().zip(&self.is_shown);
        all.filter_map(|(sample, is_shown)| is_shown.then_some(sample))
    }

    /// The edit list that shows every frame at its time, the last one for `frame_duration`.
    pub(super) fn durations(&mut self, frame_duration: u32) -> Result<Durations, Refusal> {
        self.check_key_frames()?;
        self.decode_earlier()?;
        let (start, last) = (self.shown().map(cts).min(), self.shown().map(cts).max());
        let (Some(start), Some(last)) = (start, last) else {
            return Err(refused("packets of which none is shown".to_owned()));
        };
        let unit = i64::from(frame_duration);
        // What is not shown afterwards ends the part that is.
        let hidden = self.stored.iter().map(cts).filter(|cts| *cts > last);
        let end = hidden.chain([last + unit]).min().unwrap_or(last + unit);
        let edit = Edit {
            wait: self.wait(start)?,
            start,
            duration: end - start,
        };
        self.check(edit)?;
        self.check_distinct()?;
        let latest = self.stored.iter().map(cts).max();
        let media = latest.unwrap_or(last) + unit;
        let media = media.unsigned_abs();
        Ok(Durations { edit, media })
    }

    fn check_key_frames(&self) -> Result<(), Refusal> {
        if self.stored.iter().any(|sample| sample.is_key) {
            return Ok(());
        }
        Err(refused(match self.stored.len() {
            0 => "no packets".to_owned(),
            count => format!("{count} packets without a key frame"),
        }))
    }

    /// Moves decode times so much earlier that no frame is shown before it is decoded.
    fn decode_earlier(&mut self) -> Result<(), Refusal> {
        let delays = || self.stored.iter().map(|sample| sample.delay);
        let earlier = delays().min().unwrap_or(0).min(0).saturating_neg();
        // Both are at most `MAX_OFFSET`, so their sum is a number.
        let longest = delays().max().unwrap_or(0) + earlier;
        if longest.unsigned_abs() > MAX_OFFSET {
            return Err(refused(format!(
                "frames that are shown {earlier} units before they are decoded, and others so much later that both \
                 differ by more than {MAX_OFFSET}"
            )));
        }
        for sample in &mut self.stored {
            sample.delay += earlier;
        }
        let first_dts = self.first_dts.checked_sub(earlier.into());
        self.first_dts = first_dts.ok_or_else(too_long)?;
        Ok(())
    }

    /// How long nothing is shown, if the media time `start` is shown first.
    fn wait(&self, start: i64) -> Result<i64, Refusal> {
        match self.first_dts.checked_add(start) {
            Some(wait @ ..0) => Err(refused(format!(
                "a frame that is shown at {wait}, before 0; add the same to all times"
            ))),
            Some(wait @ 0..edits::LONGEST) => Ok(wait),
            _ => Err(too_long()),
        }
    }

    /// Refuses an edit with which FFmpeg would show other frames, or the same ones at other times.
    fn check(&self, edit: Edit) -> Result<(), Refusal> {
        let stored = StoredSamples {
            samples: self.stored.clone(),
            has_delays: self.stored.iter().any(|sample| sample.delay != 0),
            end: 0,
        };
        let wanted = self.shown();
        let wanted = wanted.map(|sample| (sample.offset, cts(sample) - edit.start + edit.wait));
        let found = edits::apply(&stored, Some(edit)).unwrap_or_default();
        let found = found.samples.iter().filter(|sample| sample.is_shown);
        if found.map(|sample| (sample.offset, sample.pts)).eq(wanted) {
            return Ok(());
        }
        let what = "frames that are not shown between some that are, or key frames that are shown before the first \
                    packet's";
        Err(refused(what.to_owned()))
    }

    /// Refuses two frames at the same time.
    fn check_distinct(&self) -> Result<(), Refusal> {
        let mut times: Vec<_> = self.shown().map(cts).collect();
        times.sort_unstable();
        let same = times.iter().zip(times.iter().skip(1)).find(|(a, b)| a == b);
        same.map_or(Ok(()), |(time, _)| {
            let time = self.first_dts.saturating_add(*time);
            Err(refused(format!("two frames that are shown at {time}")))
        })
    }
}

fn too_long() -> Refusal {
    refused(format!("times beyond {} units", edits::LONGEST))
}

/// From when a packet is decoded to when its frame is shown.
fn delay(packet: &Mp4Packet<'_>) -> Result<i32, String> {
    let (dts, pts) = (packet.dts, packet.pts);
    let delay = pts.checked_sub(dts);
    let delay = delay.and_then(|delay| i32::try_from(delay).ok());
    let near = delay.filter(|delay| delay.unsigned_abs() <= MAX_OFFSET);
    near.ok_or_else(|| {
        format!(
            "a frame that is decoded at {dts} and shown at {pts}, more than {MAX_OFFSET} units apart; use a smaller \
             timescale"
        )
    })
}

/// The size of a packet in the tables.
fn packet_size(len: usize) -> Result<u32, String> {
    match u32::try_from(len) {
        Ok(0) => Err("an empty packet".to_owned()),
        Ok(size) if size <= MAX_PACKET => Ok(size),
        _ => Err(format!(
            "a packet of {len} bytes; at most {MAX_PACKET} can be read"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::packet_size;

    #[test]
    fn a_packet_has_a_size_that_can_be_read() {
        assert_eq!(packet_size(1), Ok(1));
        assert_eq!(packet_size(0x3fff_ffff), Ok(0x3fff_ffff));
        for len in [0, 0x4000_0000, 1 << 32, usize::MAX] {
            assert!(packet_size(len).is_err(), "{len}");
        }
    }
}
