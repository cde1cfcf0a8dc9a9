//! Which samples are key frames.
//!
//! `stss` lists them by number, from 1; without it, all are. QuickTime lists those of open groups of pictures in `stps`,
//! other writers in a sample group `rap `. FFmpeg counts all of them.

use super::boxes::{Fault, Fields, children, corrupt, find, pair};

/// The key frames of a track, in order.
pub(super) struct KeyFrames<'a> {
    /// `None` if all samples are key frames.
    listed: Option<&'a [[u8; 4]]>,
    partial: &'a [[u8; 4]],
    groups: &'a [[u8; 8]],
    /// What is left of the first of `groups`.
    left: u32,
}

impl<'a> KeyFrames<'a> {
    pub(super) fn parse(stbl: &'a [u8], samples: usize) -> Result<Self, Fault> {
        let stss = find(stbl, b"stss", "stbl")?;
        let stps = find(stbl, b"stps", "stbl")?;
        let groups = random_access_points(stbl)?;
        Ok(Self {
            listed: stss
                .map(|stss| numbers(stss, "stss", samples))
                .transpose()?,
            partial: stps.map_or(Ok(&[][..]), |stps| numbers(stps, "stps", samples))?,
            left: groups.first().map_or(0, |row| pair(*row).0),
            groups,
        })
    }

    /// Whether a sample is a key frame; samples are asked for one after another, from 1.
    pub(super) fn next_is_key(&mut self, number: u32) -> bool {
        let is_listed = match &mut self.listed {
            None => true,
            // Without any, FFmpeg begins with the first.
            Some([]) if number == 1 && self.partial.is_empty() && self.groups.is_empty() => true,
            Some(listed) => take(listed, number),
        };
        let is_partial = take(&mut self.partial, number);
        let is_grouped = self.next_is_grouped();
        is_listed || is_partial || is_grouped
    }

    fn next_is_grouped(&mut self) -> bool {
        while let [row, rest @ ..] = self.groups {
            if self.left > 0 {
                self.left -= 1;
                return pair(*row).1 > 0;
            }
            self.groups = rest;
            self.left = rest.first().map_or(0, |row| pair(*row).0);
        }
        false
    }
}

/// Whether a number is the next of a list; it is then taken off.
fn take(list: &mut &[[u8; 4]], number: u32) -> bool {
    match list {
        [first, rest @ ..] if u32::from_be_bytes(*first) == number => {
            *list = rest;
            true
        }
        _ => false,
    }
}

/// Numbers of samples, which must go up.
fn numbers<'a>(
    table: &'a [u8],
    object: &'static str,
    samples: usize,
) -> Result<&'a [[u8; 4]], Fault> {
    let (mut fields, _, _) = Fields::full(table, object)?;
    let rows = fields.rows()?;
    let mut before = 0;
    for row in rows {
        let number = u32::from_be_bytes(*row);
        if number <= before || u64::from(number) > samples as u64 {
            let what = format!("lists sample {number} after {before}, of {samples}");
            return Err(corrupt(object, what));
        }
        before = number;
    }
    Ok(rows)
}

/// The sample group `rap `: runs of samples, each with a number that is not 0 for key frames.
fn random_access_points(stbl: &[u8]) -> Result<&[[u8; 8]], Fault> {
    for group in children(stbl, "stbl") {
        let group = group?;
        if group.kind != *b"sbgp" {
            continue;
        }
        let (mut fields, version, _) = Fields::full(group.body, "sbgp")?;
        if fields.kind()? != *b"rap " {
            continue;
        }
        if version == 1 {
            fields.skip(4)?;
        }
        return fields.rows();
    }
    Ok(&[])
}
