//! `stsd`: the codec of a track, its configuration, and the size and color of its images.
//!
//! ```text
//! stsd ── avc1 │ hvc1 │ av01 │ … ─┬─ avcC │ hvcC │ av1C │ vpcC │ esds      configuration
//!         u16 width, u16 height   ├─ colr                                 color
//!                                 └─ sinf                                 encrypted: refused
//! ```

use super::boxes::{Fault, Fields, Kind, children, corrupt, find, unsupported};

use super::{Mp4Codec, Mp4Color, Mp4Pixels, config};

/// What is said about all samples of a track.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) codec: Mp4Codec,
    pub(super) config: Vec<u8>,
    pub(super) width: u16,
    pub(super) height: u16,
    pub(super) color: Option<Mp4Color>,
    pub(super) pixels: Option<Mp4Pixels>,
    /// Which of the files in `dref` has the samples; the first is 1.
    pub(super) data_reference: u16,
}

/// The description of a track. Several are accepted if they are equal.
pub(super) fn parse(stsd: &[u8]) -> Result<Description, Fault> {
    let (mut fields, _, _) = Fields::full(stsd, "stsd")?;
    let count = fields.u32()?;
    let (mut first, mut found) = (None, 0);
    for entry in children(fields.rest(), "stsd") {
        let entry = entry?;
        let description = parse_entry(entry.kind, entry.body)?;
        found += 1;
        if *first.get_or_insert((entry.kind, entry.body)) != (entry.kind, entry.body) {
            let what = "changes the codec or its configuration inside the video";
            return Err(unsupported("stsd", what, REENCODE));
        }
        if found == count {
            return Ok(description);
        }
    }
    let what = format!("claims {count} sample descriptions, and has {found}");
    Err(corrupt("stsd", what))
}

/// What to do with a file that cannot be taken as it is.
const REENCODE: &str = "encode it again with `ffmpeg -i IN.mp4 OUT.mp4`";

fn parse_entry(kind: Kind, body: &[u8]) -> Result<Description, Fault> {
    let mut fields = Fields::new(body, "stsd");
    fields.skip(6)?;
    let data_reference = fields.u16()?;
    fields.skip(16)?;
    let (width, height) = (fields.u16()?, fields.u16()?);
    // Resolution, frames per sample, name of the encoder, depth.
    fields.skip(50)?;
    let inside = fields.rest();
    if kind == *b"encv" || find(inside, b"sinf", "stsd")?.is_some() {
        let next = "decrypt it first";
        return Err(unsupported("stsd", "is encrypted", next));
    }
    if width == 0 || height == 0 {
        let what = format!("claims images of {width}x{height} pixels");
        return Err(corrupt("stsd", what));
    }
    let (codec, config, pixels) = codec(kind, inside)?;
    let mut color = find(inside, b"colr", "stsd")?
        .map(color)
        .transpose()?
        .flatten();
    if codec == Mp4Codec::Vp9 && color.is_none() {
        color = vpcc(inside)?.and_then(config::vp9_color);
    }
    Ok(Description {
        codec,
        config,
        width,
        height,
        color,
        pixels,
        data_reference,
    })
}

/// A codec, its configuration, and what that says about pixels.
type Configured = (Mp4Codec, Vec<u8>, Option<Mp4Pixels>);

fn codec(kind: Kind, inside: &[u8]) -> Result<Configured, Fault> {
    let config = |name: &Kind| find(inside, name, "stsd");
    let need = |name: &Kind, named: &str| {
        let missing = || {
            corrupt(
                "stsd",
                format!("has no {named}, the configuration of its codec"),
            )
        };
        config(name)?.map(<[u8]>::to_vec).ok_or_else(missing)
    };
    Ok(match &kind {
        b"avc1" | b"avc3" => {
            let config = need(b"avcC", "avcC")?;
            let pixels = config::h264_pixels(&config);
            (Mp4Codec::H264, config, pixels)
        }
        b"hvc1" | b"hev1" => {
            let config = need(b"hvcC", "hvcC")?;
            let pixels = config::hevc_pixels(&config);
            (Mp4Codec::Hevc, config, pixels)
        }
        b"av01" => {
            // The sequence header is in the packets too, so old files may do without.
            let config = config(b"av1C")?.unwrap_or_default().to_vec();
            let pixels = config::av1_pixels(&config);
            (Mp4Codec::Av1, config, pixels)
        }
        b"vp09" => {
            let pixels = vpcc(inside)?.and_then(config::vp9_pixels);
            (Mp4Codec::Vp9, Vec::new(), pixels)
        }
        b"mp4v" => {
            let esds = need(b"esds", "esds")?;
            let (object_type, config) = config::decoder_config(&esds)?;
            (Mp4Codec::Mp4v { object_type }, config, None)
        }
        _ => (Mp4Codec::Other { fourcc: kind }, Vec::new(), None),
    })
}

/// The fields of `vpcC` in a version that is known.
fn vpcc(inside: &[u8]) -> Result<Option<&[u8]>, Fault> {
    let Some(vpcc) = find(inside, b"vpcC", "stsd")? else {
        return Ok(None);
    };
    let (fields, version, _) = Fields::full(vpcc, "vpcC")?;
    Ok((version == 1).then_some(fields.rest()))
}

/// `colr` of the kinds that name standards; an ICC profile is ignored.
fn color(colr: &[u8]) -> Result<Option<Mp4Color>, Fault> {
    let mut fields = Fields::new(colr, "colr");
    let kind = fields.kind()?;
    if kind != *b"nclx" && kind != *b"nclc" {
        return Ok(None);
    }
    let (primaries, transfer, matrix) = (fields.u16()?, fields.u16()?, fields.u16()?);
    let range = (kind == *b"nclx").then(|| fields.u8()).transpose()?;
    Ok(Some(Mp4Color {
        primaries,
        transfer,
        matrix,
        is_full_range: range.map(|range| range & 0x80 != 0),
    }))
}
