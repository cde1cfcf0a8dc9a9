//! The scan: Huffman codes to coefficients.
//!
//! ```text
//! scan   … 1 1 0 1 0 1 1 0 1 …        code 1101: two zeros, then a coefficient of 2 bits; 01: it is -2
//!          └───────────────┘          10 bits, looked up at once: the code has 4 bits and 2 follow; advance by 3
//! ```
//!
//! The slow algorithm reads a code bit by bit until it is one, then the bits of the coefficient, and their sign decides. Here a look at the
//! next 10 bits says how long the code is and how many bits follow, so that the search for the next code does not wait
//! for the coefficient, and nothing is decided by a branch that the CPU cannot foresee. A code of more than 10 bits is found
//! by the largest code of each length.

use super::file::{AFTER, Codes, File};
use super::idct::PAIR;

/// Bits that are looked up at once.
const LOOKUP: u32 = 10;

/// What 10 bits stand for. 0: a longer code.
///
/// ```text
/// bit  19 … 13               12 … 9                     8 … 5              4 … 0
///      places to advance     bits of the coefficient    bits of the code   both together
/// ```
type Entry = u32;

/// Advances beyond the end of a block, and further than a run can by mistake.
const END: u32 = 100;

/// The tables of one file. They are made again only if those of the next file differ.
#[derive(Debug, Default)]
pub(super) struct Tables {
    direct: [Table; 3],
    alternating: [Table; 3],
    /// By component, in which of these its table is: components that share a table share its entries.
    direct_of: [usize; 3],
    alternating_of: [usize; 3],
}

/// Where the coefficients of a block go.
pub(super) struct Half<'p> {
    pub(super) pair: &'p mut [i16; PAIR],
    /// 0 or 1.
    pub(super) half: usize,
}

#[derive(Debug)]
struct Table {
    entries: Box<[Entry; 1 << LOOKUP]>,
    /// By length: what is less, as 16 bits, is a code of at most that length.
    limits: [u32; 17],
    /// By length: added to a code, gives the place of its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
    counts: [u8; 16],
}

impl Default for Table {
    fn default() -> Self {
        Self {
            entries: Box::new([0; 1 << LOOKUP]),
            limits: [0; 17],
            offsets: [0; 17],
            symbols: Vec::new(),
            counts: [0; 16],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Direct,
    Alternating,
}

impl Tables {
    /// Takes the tables of a file; `None` if one of them is not a table, or has symbols that baseline files do not have.
    pub(super) fn set(&mut self, file: &File<'_>) -> Option<()> {
        let sets = [
            (
                &mut self.direct,
                &mut self.direct_of,
                &file.direct,
                Class::Direct,
            ),
            (
                &mut self.alternating,
                &mut self.alternating_of,
                &file.alternating,
                Class::Alternating,
            ),
        ];
        for (tables, of, codes, class) in sets {
            for component in 0..3 {
                let first = codes[..component]
                    .iter()
                    .position(|one| *one == codes[component]);
                of[component] = first.unwrap_or(component);
                if first.is_none() {
                    tables[component].set(codes[component], class)?;
                }
            }
        }
        Some(())
    }

    /// Reads one block into its half of a pair; whether all coefficients but the first are zero.
    #[inline(always)]
    pub(super) fn block(
        &self,
        component: usize,
        bits: &mut Bits<'_>,
        last: &mut i32,
        Half { pair, half }: Half<'_>,
    ) -> Option<bool> {
        let places = &PLACES[half & 1];
        // A copy, which the compiler keeps in registers.
        let mut here = *bits;
        here.refill()?;
        let direct = &self.direct[self.direct_of[component]];
        let (difference, _) = here.symbol(direct, Class::Direct)?;
        *last = last.wrapping_add(i32::from(difference));
        pair[usize::from(places[0])] = low(last.cast_unsigned());
        let table = &self.alternating[self.alternating_of[component]];
        let mut at = 1;
        loop {
            let (value, advance) = here.symbol(table, Class::Alternating)?;
            at += advance as usize;
            pair[usize::from(places[(at - 1) & 255])] = value;
            if at >= 64 {
                break;
            }
            // There are bits for two symbols.
            here.refill()?;
            let (value, advance) = here.symbol(table, Class::Alternating)?;
            at += advance as usize;
            pair[usize::from(places[(at - 1) & 255])] = value;
            if at >= 64 {
                break;
            }
        }
        *bits = here;
        // A run that leads beyond the end is a mistake.
        let is_end = at == 64 || at > END as usize;
        is_end.then_some(at == END as usize + 1)
    }
}

impl Table {
    fn set(&mut self, codes: Codes<'_>, class: Class) -> Option<()> {
        if self.counts == *codes.counts && self.symbols == codes.symbols {
            return Some(());
        }
        // What is there if something is wrong fits no file.
        self.counts = [0; 16];
        self.symbols.clear();
        self.entries.fill(0);
        let (mut code, mut place) = (0_u32, 0_usize);
        for (len, &count) in (1..).zip(codes.counts) {
            let offset = i32::try_from(place).ok()? - code.cast_signed();
            self.offsets[len as usize] = offset;
            for _ in 0..count {
                let symbol = *codes.symbols.get(place)?;
                if code >> len != 0 || !is_baseline(symbol, class) {
                    return None;
                }
                if len <= LOOKUP {
                    self.put(code, len, symbol, class);
                }
                code += 1;
                place += 1;
            }
            // The code of ones alone is not used: libjpeg-turbo, too, refuses a table that has it.
            if code >= 1 << len {
                return None;
            }
            self.limits[len as usize] = code << (16 - len);
            code <<= 1;
        }
        self.symbols.extend_from_slice(codes.symbols);
        self.counts = *codes.counts;
        Some(())
    }

    /// Fills the entries that begin with a code.
    fn put(&mut self, code: u32, len: u32, symbol: u8, class: Class) {
        let (advance, size) = meaning(symbol, class);
        let rest = LOOKUP - len;
        let first = (code << rest) as usize;
        let entry = advance << 13 | size << 9 | len << 5 | (len + size);
        self.entries[first..first + (1 << rest)].fill(entry);
    }

    /// A code of more than 10 bits at the start of 16: its length and its symbol.
    #[cold]
    fn long(&self, bits: u32) -> Option<(u32, u8)> {
        let len = (LOOKUP + 1..=16).find(|&len| bits < self.limits[len as usize])?;
        let place = (bits >> (16 - len)).cast_signed() + self.offsets[len as usize];
        let symbol = self.symbols.get(usize::try_from(place).ok()?)?;
        Some((len, *symbol))
    }
}

/// Whether a symbol may be in a table of a baseline file: sizes up to 11 and 10 bits; without a size, the end or 16 zeros.
fn is_baseline(symbol: u8, class: Class) -> bool {
    match class {
        Class::Direct => symbol <= 11,
        Class::Alternating => symbol & 15 <= 10 && (symbol & 15 > 0 || matches!(symbol, 0 | 0xf0)),
    }
}

/// How far a symbol advances, and the bits of its coefficient.
#[inline(always)]
fn meaning(symbol: u8, class: Class) -> (u32, u32) {
    match (class, symbol) {
        (Class::Direct, size) => (1, u32::from(size)),
        (Class::Alternating, 0) => (END, 0),
        (Class::Alternating, symbol) => (u32::from(symbol >> 4) + 1, u32::from(symbol & 15)),
    }
}

/// The lower 16 bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "that is what is wanted")]
fn low(bits: u32) -> i16 {
    bits as i16
}

/// The bits of a scan.
#[derive(Clone, Copy)]
pub(super) struct Bits<'s> {
    /// With [`AFTER`] zeros at its end.
    scan: &'s [u8],
    /// The next byte to be read.
    at: usize,
    /// The next bits, the first one highest; at least `left` of them are there.
    next: u64,
    left: u32,
}

impl<'s> Bits<'s> {
    pub(super) fn new(scan: &'s [u8]) -> Self {
        Self {
            scan,
            at: 0,
            next: 0,
            left: 0,
        }
    }

    /// Whether all of the scan was used, but for less than a byte.
    pub(super) fn is_at_end(&self) -> bool {
        let used = (self.at * 8).checked_sub(self.left as usize);
        let bits = self.scan.len().saturating_sub(AFTER) * 8;
        used.and_then(|used| bits.checked_sub(used))
            .is_some_and(|rest| rest < 8)
    }

    /// Has at least 56 bits: enough for two symbols, whose codes have up to 16 bits, and their coefficients up to 11.
    #[inline(always)]
    fn refill(&mut self) -> Option<()> {
        let bytes: [u8; 8] = self.scan.get(self.at..self.at + 8)?.try_into().ok()?;
        // The bits after `left` are there already, and are the same.
        self.next |= u64::from_be_bytes(bytes) >> self.left;
        self.at += (63 - self.left as usize) / 8;
        self.left |= 56;
        Some(())
    }

    /// The coefficient of the next symbol, and how far it advances.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a coefficient has at most 11 bits"
    )]
    fn symbol(&mut self, table: &Table, class: Class) -> Option<(i16, u32)> {
        let entry = table.entries[(self.next >> (64 - LOOKUP)) as usize];
        let (mut both, mut len) = (entry & 31, entry >> 5 & 15);
        let (mut size, mut advance) = (entry >> 9 & 15, entry >> 13);
        if both == 0 {
            let (long, symbol) = table.long((self.next >> 48) as u32)?;
            (advance, size) = meaning(symbol, class);
            (len, both) = (long, long + size);
        }
        let rest = self.next << len;
        // Shifted twice: a shift by all 64 bits is none.
        let bits = (rest >> 1 >> (63 - size)) as u32;
        // Those that start with 0 are negative: 00 to 11 are -3, -2, 2, 3.
        let is_positive = (rest >> 63) as u32;
        let value = bits.wrapping_sub((is_positive ^ 1) * ((1 << size) - 1));
        self.next <<= both;
        self.left -= both;
        Some((low(value), advance))
    }
}

/// For each half of a pair, by position in the zigzag order: the place of a coefficient. What is beyond the end goes to a place
/// that is not used.
static PLACES: [[u8; 256]; 2] = [places(0), places(8)];

const fn places(half: u8) -> [u8; 256] {
    let mut places = [128; 256];
    let (mut row, mut column) = (0_u8, 0_u8);
    let mut at = 0;
    while at < 64 {
        places[at] = row * 16 + half + column;
        // Up and to the right on even diagonals, down and to the left on odd ones.
        if (row + column) % 2 == 0 {
            match (row, column) {
                (_, 7) => row += 1,
                (0, _) => column += 1,
                _ => {
                    row -= 1;
                    column += 1;
                }
            }
        } else {
            match (row, column) {
                (7, _) => column += 1,
                (_, 0) => row += 1,
                _ => {
                    row += 1;
                    column -= 1;
                }
            }
        }
        at += 1;
    }
    places
}

/// The places of coefficients in the order of a quantisation table.
pub(super) fn place(at: usize) -> usize {
    usize::from(PLACES[0][at & 63])
}
