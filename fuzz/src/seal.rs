//! Checksums of foreign formats. A wrong one would stop the fuzzer right away, and an attacker computes a correct one.

/// Corrects the checksums of HDF5's superblock, object headers, fractal heaps and second B-trees of depth zero.
pub fn seal_hdf5(file: &mut [u8]) {
    if file.starts_with(b"\x89HDF\r\n\x1a\n") && file.get(8).is_some_and(|&version| version >= 2) {
        seal(file, 0, 44);
    }
    let Some(last) = file.len().checked_sub(4) else {
        return;
    };
    for at in 0..last {
        match &file[at..at + 4] {
            b"OHDR" => seal_header(file, at),
            b"FRHP" => seal(file, at, 142),
            b"BTHD" => {
                seal(file, at, 34);
                seal_leaf(file, at);
            }
            _ => {}
        }
    }
}

/// Writes the checksum of `len` bytes at `start` behind them.
fn seal(file: &mut [u8], start: usize, len: usize) {
    let Some(body) = file.get(start..start.saturating_add(len)) else {
        return;
    };
    let sum = lookup3(body).to_le_bytes();
    if let Some(place) = file.get_mut(start + len..start + len + 4) {
        place.copy_from_slice(&sum);
    }
}

/// An object header: signature, version, flags, optional times and limits, length of the messages, messages.
fn seal_header(file: &mut [u8], start: usize) {
    let Some(&flags) = file.get(start + 5) else {
        return;
    };
    let mut at = start + 6;
    at += if flags & 0x20 == 0 { 0 } else { 16 };
    at += if flags & 0x10 == 0 { 0 } else { 4 };
    let size = 1 << (flags & 3);
    if let Some(len) = number(file, at, size) {
        seal(file, start, (at + size - start).saturating_add(len));
    }
}

/// The only leaf of a B-tree: signature, version, type, then as many records as its header says.
fn seal_leaf(file: &mut [u8], header: usize) {
    let record = number(file, header + 10, 2);
    let root = number(file, header + 16, 8);
    let records = number(file, header + 24, 2);
    let (Some(record), Some(root), Some(records)) = (record, root, records) else {
        return;
    };
    if file
        .get(root..)
        .is_some_and(|leaf| leaf.starts_with(b"BTLF"))
    {
        seal(file, root, 6 + record * records);
    }
}

fn number(file: &[u8], at: usize, size: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(file.get(at..at.checked_add(size)?)?);
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

/// Bob Jenkins' `hashlittle`.
fn lookup3(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let mut state = [start; 3];
    let last = bytes.len().saturating_sub(1) / 12 * 12;
    let (blocks, tail) = bytes.split_at(last);
    for block in blocks.chunks_exact(12) {
        add(&mut state, block);
        mix(&mut state);
    }
    if !tail.is_empty() {
        add(&mut state, tail);
        finish(&mut state);
    }
    state[2]
}

fn add(state: &mut [u32; 3], block: &[u8]) {
    for (word, part) in state.iter_mut().zip(block.chunks(4)) {
        let mut bytes = [0; 4];
        bytes[..part.len()].copy_from_slice(part);
        *word = word.wrapping_add(u32::from_le_bytes(bytes));
    }
}

fn mix(state: &mut [u32; 3]) {
    let rounds = [
        (0, 2, 1, 4),
        (1, 0, 2, 6),
        (2, 1, 0, 8),
        (0, 2, 1, 16),
        (1, 0, 2, 19),
        (2, 1, 0, 4),
    ];
    for (x, y, z, turn) in rounds {
        state[x] = state[x].wrapping_sub(state[y]) ^ state[y].rotate_left(turn);
        state[y] = state[y].wrapping_add(state[z]);
    }
}

fn finish(state: &mut [u32; 3]) {
    for (x, y, turn) in [
        (2, 1, 14),
        (0, 2, 11),
        (1, 0, 25),
        (2, 1, 16),
        (0, 2, 4),
        (1, 0, 14),
        (2, 1, 24),
    ] {
        state[x] = (state[x] ^ state[y]).wrapping_sub(state[y].rotate_left(turn));
    }
}

/// Corrects the checksum of every header of a tar file, as far as their lengths lead.
pub fn seal_tar(file: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = file.get_mut(at..at + 512) {
        if header.iter().all(|&byte| byte == 0) {
            return;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let size = str::from_utf8(&header[124..135]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size.trim(), 8).ok());
        let Some(size) = size else { return };
        at += 512 + size.next_multiple_of(512);
    }
}

/// A TFRecord: length, its masked CRC, the body, its masked CRC.
pub fn tfrecord(body: &[u8], out: &mut Vec<u8>) {
    let masked = |bytes: &[u8]| {
        let crc = kino_format::page_checksum(bytes);
        (crc.rotate_right(15).wrapping_add(0xa282_ead8)).to_le_bytes()
    };
    let len = (body.len() as u64).to_le_bytes();
    out.extend(len);
    out.extend(masked(&len));
    out.extend(body);
    out.extend(masked(body));
}
