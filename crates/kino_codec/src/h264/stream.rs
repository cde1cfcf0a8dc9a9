//! What a configuration says about a stream, and the pictures in its packets.

use kino_ffmpeg::{ColorRange, Matrix};
use rust_h264::decoder::{ChromaFormat, Decoder, Frame};
use rust_h264::nal::{NalUnit, NalUnitType, parse_avcc, parse_avcc_config, parse_sps_info};

use super::parameters::{self, Picture, Sequence};
use super::slice::{self, Kind, Stored};
use super::{Refusal, damaged, foreign};
use crate::bit_reader::BitReader;

/// Most slices of a picture: the decoder copies the picture for each.
const MAX_SLICES: usize = 64;

/// Most images that are decoded before one that is shown earlier, by the standard.
const MAX_DEPTH: u32 = 16;

/// What is known from the configuration.
pub(super) struct Stream {
    configuration: Vec<u8>,
    pub(super) sequence: Sequence,
    pictures: Vec<Picture>,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) range: ColorRange,
    pub(super) matrix: Matrix,
    /// How many images are decoded at most before one that is shown earlier.
    pub(super) depth: usize,
}

/// The slices of a packet, checked.
pub(super) struct AccessUnit<'a> {
    pub(super) slices: Vec<NalUnit<'a>>,
    pub(super) is_idr: bool,
    /// Everything that is shown from this picture on can be decoded.
    pub(super) is_recovery_point: bool,
}

impl Stream {
    pub(super) fn parse(configuration: &[u8]) -> Result<Self, Refusal> {
        let config = parse_avcc_config(configuration).map_err(damaged)?;
        let [sps] = &*config.sps_nals else {
            let count = config.sps_nals.len();
            return Err(foreign(format!("{count} sequence parameter sets")));
        };
        if sps.nal_unit_type != NalUnitType::Sps {
            return Err(damaged("a parameter set is of another kind"));
        }
        let sequence = parameters::sequence(&sps.rbsp)?;
        let mut pictures = Vec::new();
        for pps in &config.pps_nals {
            if pps.nal_unit_type != NalUnitType::Pps {
                return Err(damaged("a parameter set is of another kind"));
            }
            pictures.push(parameters::picture(&pps.rbsp, &sequence)?);
        }
        let info = parse_sps_info(sps)?;
        let size =
            |side: u32| usize::try_from(side).map_err(|_| damaged("its images are too large"));
        let reorder = info.max_reorder_frames.unwrap_or(MAX_DEPTH);
        let depth = match sequence.order_bits {
            0 => 0,
            _ => reorder.min(MAX_DEPTH),
        };
        Ok(Self {
            configuration: configuration.to_vec(),
            pictures,
            height: size(info.height)?,
            width: size(info.width)?,
            range: if info.full_range {
                ColorRange::Full
            } else {
                ColorRange::Limited
            },
            matrix: match info.matrix {
                2 => Matrix::Unspecified,
                5 | 6 => Matrix::Bt601,
                1 => Matrix::Bt709,
                9 => Matrix::Bt2020,
                other => Matrix::Other(other.into()),
            },
            depth: size(depth)?,
            sequence,
        })
    }

    /// A decoder that knows the parameter sets.
    pub(super) fn decoder(&self) -> Result<Decoder, Refusal> {
        let config = parse_avcc_config(&self.configuration).map_err(damaged)?;
        let mut decoder = Decoder::new();
        for set in config.sps_nals.iter().chain(&config.pps_nals) {
            decoder.decode_nal(set)?;
        }
        Ok(decoder)
    }

    /// Splits a packet into NAL units and checks them.
    pub(super) fn access_unit<'a>(&self, packet: &'a [u8]) -> Result<AccessUnit<'a>, Refusal> {
        let config = parse_avcc_config(&self.configuration).map_err(damaged)?;
        let sets: Vec<_> = config.sps_nals.iter().chain(&config.pps_nals).collect();
        let mut found = AccessUnit {
            slices: Vec::new(),
            is_idr: false,
            is_recovery_point: false,
        };
        for unit in units(packet, config.length_size)? {
            match unit.nal_unit_type {
                NalUnitType::Slice | NalUnitType::SliceIdr => found.slices.push(unit),
                NalUnitType::SliceDataA | NalUnitType::SliceDataB | NalUnitType::SliceDataC => {
                    return Err(foreign("data partitioning"));
                }
                NalUnitType::Sei => found.is_recovery_point |= is_recovery_point(&unit.rbsp),
                NalUnitType::Sps | NalUnitType::Pps
                    if !sets.iter().any(|set| is_same(set, &unit)) =>
                {
                    return Err(foreign("parameter sets that change"));
                }
                _ => {}
            }
        }
        let is_intra = self.check_slices(&found.slices)?;
        let first = found.slices.first();
        found.is_idr = first.is_some_and(|unit| unit.nal_unit_type == NalUnitType::SliceIdr);
        found.is_recovery_point &= is_intra;
        Ok(found)
    }

    /// Checks the slices of a picture. Returns whether all are intra slices.
    fn check_slices(&self, slices: &[NalUnit<'_>]) -> Result<bool, Refusal> {
        if slices.len() > MAX_SLICES {
            let count = slices.len();
            return Err(foreign(format!("{count} slices in a picture")));
        }
        let (mut next, mut is_intra) = (0, true);
        for (number, unit) in slices.iter().enumerate() {
            let is_idr = unit.nal_unit_type == NalUnitType::SliceIdr;
            let stored = Stored {
                rbsp: &unit.rbsp,
                is_idr,
                is_reference: unit.nal_ref_idc > 0,
            };
            let slice = slice::check(stored, &self.sequence, &self.pictures)?;
            let is_first = number == 0;
            if is_first && slice.first_macroblock != 0 || slice.first_macroblock < next {
                return Err(foreign("slices in any order"));
            }
            if slices
                .iter()
                .any(|other| other.nal_unit_type != unit.nal_unit_type)
            {
                return Err(damaged("a picture is only partly an IDR picture"));
            }
            next = slice.first_macroblock + 1;
            is_intra &= slice.kind == Kind::I;
        }
        Ok(is_intra)
    }

    /// Refuses an image that is not what the configuration says.
    pub(super) fn check_size(&self, frame: &Frame) -> Result<(), Refusal> {
        let (height, width) = (self.height, self.width);
        let chroma = (height / 2) * (width / 2);
        let is_right = frame.chroma_format == ChromaFormat::Yuv420
            && frame.bit_depth == 8
            && frame.y.len() == height * width
            && frame.u.len() == chroma
            && frame.v.len() == chroma;
        if is_right {
            return Ok(());
        }
        Err(damaged(format!(
            "an image of {}x{} pixels, not {width}x{height}",
            frame.width, frame.height
        )))
    }
}

/// Whether two NAL units have the same bytes.
fn is_same(a: &NalUnit<'_>, b: &NalUnit<'_>) -> bool {
    a.nal_unit_type == b.nal_unit_type && a.rbsp == b.rbsp
}

/// The NAL units of a packet, each with its length in front.
fn units(packet: &[u8], length_size: usize) -> Result<Vec<NalUnit<'_>>, Refusal> {
    let mut rest = packet;
    let mut units = Vec::new();
    while !rest.is_empty() {
        let whole = rest.get(..length_size).and_then(|length| {
            let length = length
                .iter()
                .fold(0_usize, |all, byte| all << 8 | usize::from(*byte));
            rest.split_at_checked(length_size.checked_add(length)?)
        });
        let (unit, after) = whole.ok_or_else(|| damaged("a NAL unit is cut short"))?;
        units.extend(parse_avcc(unit, length_size));
        rest = after;
    }
    Ok(units)
}

/// Whether an SEI message says that decoding can begin with this picture: `recovery_point` with a count of 0.
fn is_recovery_point(rbsp: &[u8]) -> bool {
    const RECOVERY_POINT: usize = 6;
    let mut rest = rbsp;
    let number = |rest: &mut &[u8]| {
        let long = rest.iter().take_while(|byte| **byte == 0xff).count();
        let last = usize::from(*rest.get(long)?);
        *rest = rest.get(long + 1..)?;
        Some(255 * long + last)
    };
    while let (Some(kind), Some(len)) = (number(&mut rest), number(&mut rest)) {
        let Some((payload, after)) = rest.split_at_checked(len) else {
            return false;
        };
        if kind == RECOVERY_POINT {
            return BitReader::new(payload).unsigned() == Some(0);
        }
        rest = after;
    }
    false
}
