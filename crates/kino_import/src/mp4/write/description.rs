//! `stsd`: the codec, its configuration, and the size and color of the images.

use super::super::boxes::Kind;
use super::super::{Mp4Chroma, Mp4Codec, Mp4Color, Mp4Pixels};
use super::boxes::{boxed, full, words};
use super::{Mp4Header, Refusal, refused};

/// Longer configurations are refused: those of encoders have a few hundred bytes.
const MAX_CONFIG: usize = 1 << 20;

/// The largest number of pixels per second and per image of each level of VP9.
const VP9_LEVELS: [(u64, u64, u8); 14] = [
    (829_440, 36_864, 10),
    (2_764_800, 73_728, 11),
    (4_608_000, 122_880, 20),
    (9_216_000, 245_760, 21),
    (20_736_000, 552_960, 30),
    (36_864_000, 983_040, 31),
    (83_558_400, 2_228_224, 40),
    (160_432_128, 2_228_224, 41),
    (311_951_360, 8_912_896, 50),
    (588_251_136, 8_912_896, 51),
    (1_176_502_272, 8_912_896, 52),
    (1_176_502_272, 35_651_584, 60),
    (2_353_004_544, 35_651_584, 61),
    (4_706_009_088, 35_651_584, 62),
];

/// The box `stsd`.
pub(super) fn stsd(header: &Mp4Header) -> Result<Vec<u8>, Refusal> {
    if header.width == 0 || header.height == 0 {
        let (width, height) = (header.width, header.height);
        return Err(refused(format!("images of {width}x{height} pixels")));
    }
    if header.config.len() > MAX_CONFIG {
        let len = header.config.len();
        return Err(refused(format!(
            "a codec configuration of {len} bytes; at most {MAX_CONFIG} are written"
        )));
    }
    let (name, config) = configured(header)?;
    let color = header.color.map(colr).unwrap_or_default();
    let entry = boxed(&name, &[&visual(header), &config, &color]);
    Ok(full(b"stsd", 0, 0, &[&words([1]), &entry]))
}

/// The name of the sample entry, and the box with the configuration of its codec.
fn configured(header: &Mp4Header) -> Result<(Kind, Vec<u8>), Refusal> {
    let config = &*header.config;
    let need = |what: &str| match config {
        [] => Err(refused(format!(
            "{what} without a codec configuration; take it from the encoder"
        ))),
        config => Ok(config),
    };
    Ok(match header.codec {
        Mp4Codec::H264 => (*b"avc1", boxed(b"avcC", &[need("H.264")?])),
        Mp4Codec::Hevc => (*b"hvc1", boxed(b"hvcC", &[need("HEVC")?])),
        // The sequence header is in the packets too.
        Mp4Codec::Av1 if config.is_empty() => (*b"av01", Vec::new()),
        Mp4Codec::Av1 => (*b"av01", boxed(b"av1C", &[config])),
        Mp4Codec::Vp9 => {
            let vpcc = header.pixels.map(|pixels| vpcc(header, pixels));
            (*b"vp09", vpcc.transpose()?.unwrap_or_default())
        }
        Mp4Codec::Mp4v { object_type } => (*b"mp4v", esds(object_type, config)),
        Mp4Codec::Other { fourcc } => {
            return Err(refused(format!(
                "the codec `{}`; H.264, HEVC, AV1, VP9 and MPEG-4 can be written",
                fourcc.escape_ascii()
            )));
        }
    })
}

/// What every video's sample entry begins with.
fn visual(header: &Mp4Header) -> Vec<u8> {
    // 72 dots per inch.
    let resolution = words([0x0048_0000; 2]);
    let parts: [&[u8]; 9] = [
        &[0; 6],
        &1_u16.to_be_bytes(), // the first of `dref`
        &[0; 16],
        &header.width.to_be_bytes(),
        &header.height.to_be_bytes(),
        &resolution,
        // Reserved, then one frame per sample.
        &[0, 0, 0, 0, 0, 1],
        // No name of the encoder.
        &[0; 32],
        // 24 bits, and no color table.
        &[0, 24, 0xff, 0xff],
    ];
    parts.concat()
}

/// `colr`. A range that is unknown is written as limited, which is what decoders assume.
fn colr(color: Mp4Color) -> Vec<u8> {
    let range = u8::from(color.is_full_range == Some(true)) << 7;
    let meaning = [color.primaries, color.transfer, color.matrix];
    let meaning = meaning.map(u16::to_be_bytes);
    boxed(b"colr", &[b"nclx", meaning.as_flattened(), &[range]])
}

/// `vpcC`
fn vpcc(header: &Mp4Header, pixels: Mp4Pixels) -> Result<Vec<u8>, Refusal> {
    let chroma = match pixels.chroma {
        Mp4Chroma::Yuv420 => 1,
        Mp4Chroma::Yuv422 => 2,
        Mp4Chroma::Yuv444 => 3,
        Mp4Chroma::Yuv440 => 4,
        Mp4Chroma::Gray => return Err(refused("VP9 without chroma".to_owned())),
    };
    let is_deep = match pixels.bit_depth {
        8 => 0,
        10 | 12 => 2,
        bits => return Err(refused(format!("VP9 of {bits} bits"))),
    };
    let profile = is_deep + u8::from(pixels.chroma != Mp4Chroma::Yuv420);
    // 2: unspecified.
    let code = |value: u16| u8::try_from(value).unwrap_or(2);
    let color = header.color.map_or([2; 3], |color| {
        [color.primaries, color.transfer, color.matrix].map(code)
    });
    let is_full = header.color.and_then(|color| color.is_full_range);
    let range = u8::from(is_full == Some(true));
    let fields = [
        profile,
        vp9_level(header),
        pixels.bit_depth << 4 | chroma << 1 | range,
    ];
    Ok(full(b"vpcC", 1, 0, &[&fields, &color, &[0, 0]]))
}

/// The lowest level of VP9 that allows this size and rate; 0 if none does.
fn vp9_level(header: &Mp4Header) -> u8 {
    let image = u64::from(header.width) * u64::from(header.height);
    let rate = image * u64::from(header.timescale) / u64::from(header.frame_duration.max(1));
    let allows =
        |(per_second, per_image, _): &&(u64, u64, u8)| rate <= *per_second && image <= *per_image;
    VP9_LEVELS.iter().find(allows).map_or(0, |level| level.2)
}

/// `esds`: an elementary stream descriptor with a decoder configuration inside.
fn esds(object_type: u8, config: &[u8]) -> Vec<u8> {
    let specific = match config {
        [] => Vec::new(),
        config => descriptor(5, &[config]),
    };
    // A visual stream; buffer size and bit rates are not known.
    let decoder = descriptor(4, &[&[object_type, 0x11], &[0; 11], &specific]);
    let stream = descriptor(3, &[&[0, 1, 0], &decoder, &descriptor(6, &[&[2]])]);
    full(b"esds", 0, 0, &[&stream])
}

/// A descriptor with a length of four bytes of seven bits each, as FFmpeg writes them.
fn descriptor(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut len = [0x80, 0x80, 0x80, 0];
    let mut rest = body.len();
    // `MAX_CONFIG` keeps lengths below 28 bits.
    for byte in len.iter_mut().rev() {
        let [low, ..] = rest.to_le_bytes();
        *byte |= low & 0x7f;
        rest >>= 7;
    }
    [&[tag][..], &len, &body].concat()
}
