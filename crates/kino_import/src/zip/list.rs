//! The central directory of a zip file.

use std::collections::BTreeMap;

/// Where a member is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(super) header: u64,
    pub(super) stored: u64,
    /// The uncompressed size.
    pub(crate) len: u64,
    pub(super) crc: u32,
    pub(super) is_deflated: bool,
}

impl Member {
    /// Whether any range of it can be read without what precedes it.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_deflated
    }
}

/// Where the central headers are.
pub(super) struct List {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) count: u64,
}

impl List {
    /// As the end header says.
    pub(super) fn short(tail: &[u8], end: usize) -> Option<Self> {
        Some(Self {
            start: u32_at(tail, end + 16)?,
            len: u32_at(tail, end + 12)?,
            count: u16_at(tail, end + 10)?,
        })
    }

    /// As the end header of zip64 says.
    pub(super) fn long(end: &[u8]) -> Option<Self> {
        let list = Self {
            start: u64_at(end, 48)?,
            len: u64_at(end, 40)?,
            count: u64_at(end, 32)?,
        };
        end.starts_with(b"PK\x06\x06").then_some(list)
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from(u16::from_le_bytes(*bytes)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from(u32::from_le_bytes(*bytes)))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// The members of the directory, which must be as many as its end record says.
pub(super) fn members(mut list: &[u8], count: u64) -> Result<BTreeMap<String, Member>, String> {
    let (mut members, mut found) = (BTreeMap::new(), 0);
    while list.starts_with(b"PK\x01\x02") {
        let (name, member, rest) = member(list).ok_or("has a truncated central directory")?;
        let name = String::from_utf8(name.to_vec())
            .map_err(|_| "has a member whose name is not UTF-8 text")?;
        list = rest;
        found += 1;
        let (member, flags, method) = member;
        if flags & 1 == 1 {
            return Err(format!("has the encrypted member {name:?}"));
        }
        let is_deflated = match method {
            0 => false,
            8 => true,
            _ => {
                return Err(format!(
                    "has the member {name:?} with compression method {method}; only stored and deflated members are supported"
                ));
            }
        };
        if !is_deflated && member.stored != member.len {
            return Err(format!(
                "has the member {name:?} with two different lengths"
            ));
        }
        members.insert(
            name,
            Member {
                is_deflated,
                ..member
            },
        );
    }
    match found == count && list.is_empty() {
        true => Ok(members),
        false => Err(format!(
            "has a damaged central directory: it lists {found} members, its end record says {count}"
        )),
    }
}

/// Name, member with its flags and its method, and the rest of the list.
#[expect(clippy::type_complexity, reason = "read in one place")]
fn member(list: &[u8]) -> Option<(&[u8], (Member, u64, u64), &[u8])> {
    let name_len = usize::try_from(u16_at(list, 28)?).ok()?;
    let extra_len = usize::try_from(u16_at(list, 30)?).ok()?;
    let comment_len = usize::try_from(u16_at(list, 32)?).ok()?;
    let rest = list.get(46..)?;
    let (name, rest) = rest.split_at_checked(name_len)?;
    let (extra, rest) = rest.split_at_checked(extra_len)?;
    let (_, rest) = rest.split_at_checked(comment_len)?;
    let (mut stored, mut len) = (u32_at(list, 20)?, u32_at(list, 24)?);
    let mut header = u32_at(list, 42)?;
    // Values that do not fit into 32 bits are in the extra field, in this order.
    let mut long = long_field(extra);
    for value in [&mut len, &mut stored, &mut header] {
        if *value == 0xffff_ffff {
            *value = u64_at(long, 0)?;
            long = long.get(8..)?;
        }
    }
    let member = Member {
        header,
        stored,
        len,
        crc: u32::try_from(u32_at(list, 16)?).ok()?,
        is_deflated: false,
    };
    Some((name, (member, u16_at(list, 8)?, u16_at(list, 10)?), rest))
}

/// The extra field of zip64.
fn long_field(mut extra: &[u8]) -> &[u8] {
    while let (Some(id), Some(len)) = (u16_at(extra, 0), u16_at(extra, 2)) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let Some(body) = extra.get(4..4usize.saturating_add(len)) else {
            break;
        };
        if id == 1 {
            return body;
        }
        extra = &extra[4 + len..];
    }
    &[]
}
