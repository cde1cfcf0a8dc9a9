//! Which codecs are worth trying on a stream.

use kino_codec::FrameType;
use kino_format::Kind;

use super::comparison::{comparable, lz4};

/// The settings of codecs that suit a stream and can be used here, the usual choice first, and the fastest compressor
/// for comparison.
pub fn candidates(kind: Kind, frame: &FrameType) -> Vec<String> {
    let suitable = kino_codec::codecs().filter(|codec| codec.suits(kind));
    let settings = suitable.flat_map(|codec| (codec.settings)(frame));
    let compared = frame.as_values().map(|_| lz4(frame));
    let suits = |text: &String| {
        comparable(text)
            .is_ok_and(|codec| codec.check(frame).is_ok() && codec.check_encoder().is_ok())
    };
    settings.chain(compared).filter(suits).collect()
}

/// The settings of codecs that store files of one frame as they are.
pub fn carriers() -> Vec<String> {
    let files = kino_codec::codecs().filter_map(|codec| codec.files);
    let of_a_frame =
        |text: &String| kino_codec::codec(text).is_ok_and(|codec| !codec.has_own_pages());
    files
        .map(|files| files.carry.to_owned())
        .filter(of_a_frame)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kino_codec::Dtype;

    #[test]
    fn every_kind_has_codecs_and_each_can_store_it() {
        let image = FrameType::values(Dtype::U8, &[8, 8, 3]).unwrap();
        let large = FrameType::values(Dtype::F32, &[64, 64]).unwrap();
        let depth = FrameType::values(Dtype::U16, &[8, 8]).unwrap();
        for (kind, frame, first) in [
            (Kind::Image, &image, "predict"),
            (Kind::Vector, &large, "zstd:level=3,shuffle=4"),
            (Kind::Depth, &depth, "depth"),
            (Kind::Text, &FrameType::Text, "text"),
        ] {
            assert_eq!(candidates(kind, frame)[0], first, "{frame}");
        }
        for text in ["raw", "depth:abs=1", "lz4:shuffle=2"] {
            assert!(candidates(Kind::Depth, &depth).contains(&text.to_owned()));
        }
        assert_eq!(carriers(), ["jpeg:carry"]);
    }
}
