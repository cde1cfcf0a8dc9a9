//! As much of zip as `.npz` needs: members stored or deflated, found by the directory at the end.
//!
//! ```text
//! | member … | member … | directory: (PK12 … method crc sizes name … offset)* | PK56 … count, len, start of the directory |
//!   └ PK34 … name, extra, bytes
//! ```
//!
//! numpy never packs more than 4 GiB into a member here: files that need the 64-bit forms of the sizes are refused.

use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// No member is larger than this when it is unpacked (1 GiB), whatever the directory says.
const MAX_MEMBER_BYTES: usize = 1 << 30;

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    method: u16,
    crc: u32,
    packed_len: usize,
    len: usize,
    start: usize,
}

/// The members of a file, as its directory lists them.
pub(crate) fn members(file: &[u8]) -> Result<Vec<Member>, String> {
    let cut = || "has no directory at its end: the file is cut short or no zip file".to_owned();
    let end = (0..file.len().saturating_sub(21))
        .rev()
        .take(1 << 16)
        .find(|&at| file[at..].starts_with(b"PK\x05\x06"));
    let end = &file[end.ok_or_else(cut)?..];
    let start = number(end, 16, 4).ok_or_else(cut)?;
    let count = number(end, 10, 2).ok_or_else(cut)?;
    let mut at = start;
    let mut members = Vec::new();
    for _ in 0..count {
        let (member, len) = entry(file.get(at..).unwrap_or_default()).ok_or_else(cut)?;
        if [member.packed_len, member.len, member.start].contains(&0xffff_ffff) {
            return Err(format!("`{}` is larger than 4 GiB", member.name));
        }
        members.push(member);
        at += len;
    }
    Ok(members)
}

fn entry(bytes: &[u8]) -> Option<(Member, usize)> {
    if !bytes.starts_with(b"PK\x01\x02") {
        return None;
    }
    let (name_len, extra, comment) = (
        number(bytes, 28, 2)?,
        number(bytes, 30, 2)?,
        number(bytes, 32, 2)?,
    );
    let name = bytes.get(46..46 + name_len)?;
    let member = Member {
        name: std::str::from_utf8(name).ok()?.to_owned(),
        method: u16::try_from(number(bytes, 10, 2)?).ok()?,
        crc: u32::try_from(number(bytes, 16, 4)?).ok()?,
        packed_len: number(bytes, 20, 4)?,
        len: number(bytes, 24, 4)?,
        start: number(bytes, 42, 4)?,
    };
    Some((member, 46 + name_len + extra + comment))
}

/// Unpacks a member and checks it.
pub(crate) fn read(file: &[u8], member: &Member) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| format!("`{}` {what}", member.name);
    let local = file.get(member.start..).unwrap_or_default();
    let lens = number(local, 26, 2).zip(number(local, 28, 2));
    let (name_len, extra) = lens
        .filter(|_| local.starts_with(b"PK\x03\x04"))
        .ok_or_else(|| wrong("is not where the directory says"))?;
    let start = 30 + name_len + extra;
    let packed = local
        .get(start..)
        .and_then(|rest| rest.get(..member.packed_len));
    let packed = packed.ok_or_else(|| wrong("is cut short"))?;
    if member.len > MAX_MEMBER_BYTES {
        return Err(wrong("is larger than a gibibyte"));
    }
    let bytes = match member.method {
        0 => packed.to_vec(),
        8 => decompress_to_vec_with_limit(packed, member.len)
            .map_err(|error| wrong(&format!("cannot be inflated: {error}")))?,
        method => {
            return Err(wrong(&format!(
                "is packed by the method {method}, which numpy never uses"
            )));
        }
    };
    if bytes.len() != member.len || crc32fast::hash(&bytes) != member.crc {
        return Err(wrong("has a wrong checksum"));
    }
    Ok(bytes)
}

/// A little-endian number of `len` bytes.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + len)?;
    let number = bytes
        .iter()
        .rev()
        .fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    usize::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one member of any claimed length.
    fn zip(body: &[u8], len: u32, method: u16) -> Vec<u8> {
        let packed = match method {
            8 => miniz_oxide::deflate::compress_to_vec(body, 6),
            _ => body.to_vec(),
        };
        let packed_len = u32::try_from(packed.len()).unwrap().to_le_bytes();
        let (crc, len) = (crc32fast::hash(body).to_le_bytes(), len.to_le_bytes());
        let fields = [
            &[20, 0, 0, 0][..],
            &method.to_le_bytes(),
            &[0; 4],
            &crc,
            &packed_len,
            &len,
            &[1, 0, 0, 0],
        ]
        .concat();
        let local = [b"PK\x03\x04", &fields[..], b"a", &packed].concat();
        let entry = [&b"PK\x01\x02\x14\x00"[..], &fields, &[0; 14], b"a"].concat();
        let end = [
            &b"PK\x05\x06"[..],
            &[0; 4],
            &[1, 0, 1, 0],
            &u32::try_from(entry.len()).unwrap().to_le_bytes(),
            &u32::try_from(local.len()).unwrap().to_le_bytes(),
            &[0; 2],
        ]
        .concat();
        [local, entry, end].concat()
    }

    #[test]
    fn members_are_unpacked_and_checked() {
        for method in [0, 8] {
            let file = zip(&[7; 1000], 1000, method);
            let members = members(&file).unwrap();
            assert_eq!(members[0].name, "a");
            assert_eq!(read(&file, &members[0]).unwrap(), [7; 1000]);
        }
    }

    #[test]
    fn what_inflates_to_more_than_it_says_is_refused() {
        let file = zip(&vec![0; 10 << 20], 100, 8);
        let members = members(&file).unwrap();
        assert!(file.len() < 20_000 && read(&file, &members[0]).is_err());
    }

    #[test]
    fn damage_is_an_error_or_an_answer_never_a_panic() {
        let file = zip(&[7; 40], 40, 8);
        for len in 0..file.len() {
            assert!(members(&file[..len]).is_err(), "{len}");
        }
        for bit in 0..file.len() * 8 {
            let mut file = file.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            for member in members(&file).unwrap_or_default() {
                let _ = read(&file, &member);
            }
        }
    }
}
