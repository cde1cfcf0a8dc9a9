//! pcodec tables learned from a sample of a run, and the pages that are written with them.
//!
//! ```text
//! metadata  mode, delta encoding │ size_log │ bins │ ( weight − 1 │ lower │ offset bits ) × bins │ …
//!           4 + 4 bits and more    4 bits     15
//! page      delta state, four ANS states │ to a byte │ per 256 values: ANS bits × 256 │ offsets × 256 │ …
//! ```
//!
//! The library only writes values that it learned from, so a whole run would have to be in memory. Here its
//! bins are those of a sample, and *escapes* are added: bins of minimal weight and increasing width, the last of
//! which holds every value. A value that is not in the sample costs a few more bits; it is not an error. Every
//! reader of pcodec's format 4 reads what is written here.

use ::pco::FULL_BATCH_N;
use ::pco::data_types::Latent;
use ::pco::metadata::{ChunkLatentVarMeta, DynBins};

use crate::bit_writer::BitWriter;

/// The log2 of the number of states of a table: large enough that the weight of the escapes does not matter.
const SIZE_LOG: u32 = 11;

/// Higher levels of the library produce more bins than a table of this size can hold.
pub(crate) const MAX_LEVEL: usize = 9;

/// Offset bits of the escapes; only those below what the last one needs are used.
const ESCAPES: [u32; 7] = [4, 8, 12, 16, 24, 32, 44];

/// Where the whole sample is one value and no other value needs many bits, a smaller table with a single escape
/// costs less: the log2 of its size …
const PLAIN_SIZE_LOG: u32 = 6;
/// … and the offset bits of that escape.
const PLAIN_BITS: u32 = 16;

/// Every fourth value has the same ANS state.
const STATES: usize = 4;

/// A range of values.
#[derive(Debug, Clone, Copy)]
struct Bin {
    weight: u32,
    lower: u64,
    offset_bits: u32,
}

/// Where the escapes are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Escapes {
    /// The value at their centre.
    pub(crate) middle: u64,
    /// Offset bits of the widest.
    pub(crate) widest: u32,
}

/// The bins of one *latent variable*, and how to write its values.
#[derive(Debug)]
pub(crate) struct Table {
    /// Bits of a value.
    bits: u32,
    size_log: u32,
    /// The learned bins, in order, then the escapes, from narrow to wide.
    bins: Vec<Bin>,
    learned: usize,
    symbols: Vec<Symbol>,
}

/// How the ANS state changes when a value of a bin is written.
#[derive(Debug, Clone)]
struct Symbol {
    cutoff: u32,
    min_bits: u32,
    weight: u32,
    next: Vec<u32>,
}

impl Table {
    /// The table of values of `bits` bits, as the library learned it; `None` if it saw no value.
    pub(crate) fn new(bits: u32, learned: Option<&ChunkLatentVarMeta>, escapes: Escapes) -> Self {
        let (mut bins, log) = learned.map_or_else(
            || (Vec::new(), 0),
            |meta| (bins_of(&meta.bins), meta.ans_size_log),
        );
        bins.sort_by_key(|bin| bin.lower);
        let is_one = matches!(&*bins, [bin] if bin.offset_bits == 0);
        let is_plain = is_one && escapes.widest <= PLAIN_BITS;
        let size_log = if is_plain {
            PLAIN_SIZE_LOG
        } else {
            log.max(SIZE_LOG)
        };
        for bin in &mut bins {
            bin.weight <<= size_log - log;
        }
        let learned = bins.len();
        let is_used = |width: &u32| !is_plain && *width < escapes.widest;
        let widths = ESCAPES.into_iter().filter(is_used);
        bins.extend(
            widths
                .chain([escapes.widest])
                .map(|width| escape(bits, escapes.middle, width)),
        );
        balance(&mut bins, learned, 1 << size_log);
        let symbols = symbols(&bins, size_log);
        Self {
            bits,
            size_log,
            bins,
            learned,
            symbols,
        }
    }

    /// Appends the table to the metadata of a chunk.
    pub(crate) fn put(&self, out: &mut BitWriter) {
        out.put(self.size_log.into(), 4);
        out.put(self.bins.len() as u64, 15);
        for bin in &self.bins {
            out.put(u64::from(bin.weight) - 1, self.size_log);
            out.put(bin.lower, self.bits);
            out.put(
                bin.offset_bits.into(),
                u32::BITS - self.bits.leading_zeros(),
            );
        }
    }

    /// The bin of a value: the learned one, or the narrowest escape.
    fn bin(&self, value: u64) -> usize {
        let holds = |bin: &Bin| {
            let offset = value.wrapping_sub(bin.lower);
            value >= bin.lower && offset.checked_shr(bin.offset_bits).unwrap_or(0) == 0
        };
        let (learned, escapes) = self.bins.split_at(self.learned);
        let after = learned.partition_point(|bin| bin.lower <= value);
        if let Some(idx) = after.checked_sub(1).filter(|idx| holds(&learned[*idx])) {
            return idx;
        }
        let widest = escapes.len() - 1;
        self.learned + escapes.iter().position(holds).unwrap_or(widest)
    }

    /// Values as stored in a page.
    fn dissect(&self, values: &[u64]) -> Dissected {
        let mut states = [1 << self.size_log; STATES];
        let mut parts = vec![Part::default(); values.len()];
        // States are written from the last value to the first, and read from the first to the last.
        for (idx, (part, &value)) in parts.iter_mut().zip(values).enumerate().rev() {
            let which = self.bin(value);
            let (bin, symbol) = (&self.bins[which], &self.symbols[which]);
            let state = &mut states[idx % STATES];
            let state_bits = symbol.min_bits + u32::from(*state >= symbol.cutoff);
            *part = Part {
                state: *state,
                state_bits,
                offset: value.wrapping_sub(bin.lower),
                offset_bits: bin.offset_bits,
            };
            *state = symbol.next[((*state >> state_bits) - symbol.weight) as usize];
        }
        let first = 1 << self.size_log;
        Dissected {
            states: states.map(|state| state - first),
            parts,
        }
    }
}

/// The values of one table in a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latents<'a> {
    pub(crate) table: &'a Table,
    /// The initial state of delta encoding.
    pub(crate) moments: &'a [u64],
    pub(crate) values: &'a [u64],
}

/// A value, split; only the low bits of state and offset count.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    state: u32,
    state_bits: u32,
    offset: u64,
    offset_bits: u32,
}

#[derive(Debug)]
struct Dissected {
    states: [u32; STATES],
    parts: Vec<Part>,
}

/// Appends a page: the values of all tables of a chunk, interleaved by batch.
pub(crate) fn put_page(tables: &[Latents<'_>], out: &mut Vec<u8>) {
    let mut bits = BitWriter::default();
    let mut all = Vec::with_capacity(tables.len());
    for values in tables {
        let dissected = values.table.dissect(values.values);
        for moment in values.moments {
            bits.put(*moment, values.table.bits);
        }
        for state in dissected.states {
            bits.put(state.into(), values.table.size_log);
        }
        all.push(dissected.parts);
    }
    bits.finish_byte();
    let longest = all.iter().map(Vec::len).max().unwrap_or(0);
    for start in (0..longest).step_by(FULL_BATCH_N) {
        for parts in &all {
            let end = parts.len().min(start + FULL_BATCH_N);
            let batch = parts.get(start..end).unwrap_or_default();
            for part in batch {
                bits.put(part.state.into(), part.state_bits);
            }
            for part in batch {
                bits.put(part.offset, part.offset_bits);
            }
        }
    }
    out.append(&mut bits.finish());
}

/// The library's bins, for any value width.
fn bins_of(bins: &DynBins) -> Vec<Bin> {
    fn collect<L: Latent + Into<u64>>(bins: &[::pco::metadata::Bin<L>]) -> Vec<Bin> {
        let bin = |bin: &::pco::metadata::Bin<L>| Bin {
            weight: bin.weight,
            lower: bin.lower.into(),
            offset_bits: bin.offset_bits,
        };
        bins.iter().map(bin).collect()
    }
    match bins {
        DynBins::U8(bins) => collect(bins),
        DynBins::U16(bins) => collect(bins),
        DynBins::U32(bins) => collect(bins),
        DynBins::U64(bins) => collect(bins),
        // No other type exists; if one did, the escapes would hold its values.
        _ => Vec::new(),
    }
}

/// The bin of `width` offset bits around `middle`, among values of `bits` bits.
fn escape(bits: u32, middle: u64, width: u32) -> Bin {
    let half = 1_u64.checked_shl(width.saturating_sub(1)).unwrap_or(0);
    let largest = u64::MAX >> (64 - bits);
    let last = u64::MAX.checked_shr(64 - width).unwrap_or(0);
    Bin {
        weight: 1,
        lower: middle.saturating_sub(half).min(largest - last),
        offset_bits: width,
    }
}

/// Makes the weights of all bins add up to `total`: the escapes' weight is taken from the heaviest learned bin.
fn balance(bins: &mut [Bin], learned: usize, total: u32) {
    let escapes = u32::try_from(bins.len() - learned).unwrap_or(0);
    if learned == 0 {
        bins[0].weight += total - escapes;
        return;
    }
    for _ in 0..escapes {
        if let Some(heaviest) = bins[..learned].iter_mut().max_by_key(|bin| bin.weight) {
            heaviest.weight -= 1;
        }
    }
}

/// The library's table of states: symbols are spread over it in steps of about three fifths.
fn symbols(bins: &[Bin], size_log: u32) -> Vec<Symbol> {
    let size = 1_u32 << size_log;
    let stride = (3 * size / 5) | 1;
    let mut of_state = vec![0; size as usize];
    let mut step = 0_u32;
    for (idx, bin) in bins.iter().enumerate() {
        for _ in 0..bin.weight {
            of_state[(stride.wrapping_mul(step) & (size - 1)) as usize] = idx;
            step += 1;
        }
    }
    let mut symbols: Vec<Symbol> = bins
        .iter()
        .map(|bin| {
            let min_bits = size_log - (2 * bin.weight - 1).ilog2();
            Symbol {
                cutoff: (2 * bin.weight) << min_bits,
                min_bits,
                weight: bin.weight,
                next: Vec::with_capacity(bin.weight as usize),
            }
        })
        .collect();
    for (state, idx) in (size..).zip(of_state) {
        symbols[idx].next.push(state);
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::pco::wrapped::{FileCompressor, FileDecompressor};
    use ::pco::{ChunkConfig, DeltaSpec, ModeSpec};
    use proptest::prelude::*;

    const MIDDLE: u64 = 1 << 63;

    /// What the library learns from integers.
    fn learn(values: &[i64]) -> Option<ChunkLatentVarMeta> {
        let config = ChunkConfig::default()
            .with_mode_spec(ModeSpec::Classic)
            .with_delta_spec(DeltaSpec::NoOp);
        let compressor = FileCompressor::default().chunk_compressor(values, &config);
        Some(compressor.ok()?.meta().per_latent_var.primary.clone())
    }

    /// Writes a page with a table learned from a sample, and reads it with the library.
    fn there_and_back(sample: &[i64], values: &[i64]) -> (usize, Vec<i64>) {
        let learned = learn(sample);
        let escapes = Escapes {
            middle: MIDDLE,
            widest: 64,
        };
        let table = Table::new(64, learned.as_ref(), escapes);
        let mut meta = BitWriter::default();
        meta.put(0, 8);
        table.put(&mut meta);
        let mut file = Vec::new();
        FileCompressor::default().write_header(&mut file).unwrap();
        file.extend(meta.finish());
        let latents: Vec<u64> = values.iter().map(|k| k.cast_unsigned() ^ MIDDLE).collect();
        let mut page = Vec::new();
        let values = Latents {
            table: &table,
            moments: &[],
            values: &latents,
        };
        put_page(&[values], &mut page);
        let (reader, rest) = FileDecompressor::new(file.as_slice()).unwrap();
        let (mut chunk, rest) = reader.chunk_decompressor::<i64, _>(rest).unwrap();
        assert!(rest.is_empty());
        let mut back = vec![0; latents.len().next_multiple_of(FULL_BATCH_N)];
        let mut reader = chunk
            .page_decompressor(page.as_slice(), latents.len())
            .unwrap();
        reader.read(&mut back).unwrap();
        assert!(reader.into_src().is_empty());
        back.truncate(latents.len());
        (page.len(), back)
    }

    #[test]
    fn values_in_the_sample_cost_what_they_cost_in_the_library_s_own_page() {
        let values: Vec<i64> = (0..4096).map(|i| i * 7919 % 1013 - 500).collect();
        let (len, back) = there_and_back(&values, &values);
        assert_eq!(back, values);
        let config = ChunkConfig::default()
            .with_mode_spec(ModeSpec::Classic)
            .with_delta_spec(DeltaSpec::NoOp);
        let mut compressor = FileCompressor::default()
            .chunk_compressor(&values, &config)
            .unwrap();
        let own = compressor.write_page(0, Vec::new()).unwrap().len();
        assert!(len <= own + own / 50, "{len} {own}");
    }

    #[test]
    fn values_outside_the_sample_cost_a_few_more_bits() {
        let sample: Vec<i64> = (0..4096).map(|i| i % 5).collect();
        let values: Vec<i64> = (0..1000).map(|i| 1000 + i).collect();
        let (len, back) = there_and_back(&sample, &values);
        assert_eq!(back, values);
        assert!(len < 1000 * 28 / 8, "{len}");
    }

    proptest! {
        #[test]
        fn any_values_round_trip_whatever_the_sample(
            sample in prop::collection::vec(prop_oneof![any::<i64>(), -9..9_i64], 0..600),
            values in prop::collection::vec(prop_oneof![any::<i64>(), -9..9_i64, -9999..9999_i64], 1..600),
        ) {
            prop_assert_eq!(there_and_back(&sample, &values).1, values);
        }
    }
}
