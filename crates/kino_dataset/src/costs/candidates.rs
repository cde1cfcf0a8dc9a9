//! Which codecs are worth trying on a stream.

use kino_codec::FrameType;
use kino_format::Kind;

/// The codecs of this build that suit a stream, the usual choice first.
pub fn candidates(kind: Kind, frame: &FrameType) -> Vec<String> {
    let ty = frame.as_values();
    let width = ty.map_or(1, |ty| ty.dtype().size());
    let is_float = ty.is_some_and(|ty| ty.dtype().is_float());
    let shuffled = |name: &str| format!("{name}:level=3,shuffle={width}");
    let texts: Vec<String> = match kind {
        Kind::Vector => {
            let bounds = ["1e-5", "1e-4", "1e-3"].iter().filter(|_| is_float);
            let lossy = bounds.map(|eps| format!("vector:abs={eps}"));
            let exact = ["vector", "pco"].map(str::to_owned);
            exact
                .into_iter()
                .chain(lossy)
                .chain([shuffled("zstd")])
                .collect()
        }
        Kind::Image => [
            "predict",
            "camera",
            "jpeg:q=95,sub=444",
            "jpeg:q=90,sub=420",
            "jpeg:psnr=42,sub=420",
            "av1:psnr=40",
        ]
        .map(str::to_owned)
        .into(),
        Kind::Depth => {
            let millimetre = if is_float { "0.001" } else { "1" };
            let lossy = format!("depth:abs={millimetre}");
            vec!["depth".to_owned(), lossy, shuffled("zstd")]
        }
        _ => vec!["text".to_owned()],
    };
    let plain = [format!("lz4:shuffle={width}"), "raw".to_owned()];
    let general = plain.into_iter().filter(|_| ty.is_some());
    let suits = |text: &String| {
        let made = kino_codec::codec(text);
        made.is_ok_and(|codec| codec.check(frame).is_ok())
    };
    texts.into_iter().chain(general).filter(suits).collect()
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
            (Kind::Text, &FrameType::Text, "text"),
        ] {
            assert_eq!(candidates(kind, frame)[0], first, "{frame}");
        }
        assert!(candidates(Kind::Depth, &depth).contains(&"raw".to_owned()));
    }
}
