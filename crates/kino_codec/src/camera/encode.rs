//! From images to parts: picks the kind that suits each image.

use std::mem::swap;

use super::pairs::{self, Layout};
use super::part::Kind;
use super::{blocks, search};
use crate::error::Result;
use crate::predict::{self, BAND_PIXELS, Predictor, Size, split_planes};
use crate::scratch::{Scratch, at_least};
use crate::varint;
use crate::zstd_frame::Effort;

/// A part predicted from the previous image is used only if it saves at least 1/`WORTH` of the intra size.
///
/// An intra image makes the ones after it cheaper to read.
const WORTH: usize = 32;

/// Both layouts are tried if there is more than one escape byte per `SOME` pixels.
const SOME: usize = 32;

/// The page of a group of packed images.
pub(super) fn encode_group(
    effort: Effort,
    size: Size,
    group: &[u8],
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    let mut parts = Vec::new();
    let (mut planes, mut before) = (vec![0; size.bytes()], vec![0; size.bytes()]);
    // The size of the last intra image.
    let mut alone = 0;
    for pixels in group.chunks_exact(size.bytes()) {
        swap(&mut planes, &mut before);
        split_planes(size.channels, pixels, &mut planes);
        if !parts.is_empty() && planes == before {
            parts.push(vec![Kind::SAME]);
            continue;
        }
        if !parts.is_empty() {
            let (moved, is_new) = encode_moved(effort, size, &planes, &before, scratch)?;
            // Far below the size of an intra image, it need not be tried.
            if moved.len() < alone / 2 && !is_new {
                parts.push(moved);
                continue;
            }
            let part = encode_alone(effort, size, &planes, scratch)?;
            alone = part.len();
            let is_worth_it = moved.len() + moved.len() / WORTH < alone;
            parts.push(if is_worth_it { moved } else { part });
            continue;
        }
        let part = encode_alone(effort, size, &planes, scratch)?;
        alone = part.len();
        parts.push(part);
    }
    let mut page = Vec::new();
    for part in &parts {
        varint::put(part.len(), &mut page);
    }
    parts.iter().for_each(|part| page.extend_from_slice(part));
    Ok(page)
}

/// The part of an image with the predictor that suits it.
fn encode_alone(
    effort: Effort,
    size: Size,
    planes: &[u8],
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    // Choosing with a fast level on a band of rows from the middle is cheaper than encoding once.
    let band = Size {
        height: (BAND_PIXELS / size.width).clamp(1, size.height),
        ..size
    };
    let first = (size.height - band.height) / 2 * size.width;
    let band_planes: Vec<u8> = planes
        .chunks_exact(size.pixels())
        .flat_map(|plane| &plane[first..][..band.pixels()])
        .copied()
        .collect();
    let fast = predict::effort(1);
    let mut best: Option<(usize, Predictor)> = None;
    for predictor in Predictor::ALL {
        let part = encode_with(predictor, fast, band, &band_planes, scratch)?;
        let cost = predictor.cost(part.len());
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, predictor));
        }
    }
    let predictor = best.map_or(Predictor::Left, |(_, predictor)| predictor);
    encode_with(predictor, effort, size, planes, scratch)
}

/// The part of an image with this predictor.
fn encode_with(
    predictor: Predictor,
    effort: Effort,
    size: Size,
    planes: &[u8],
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    let residuals = at_least(&mut scratch.bytes, size.bytes());
    for (plane, to) in planes
        .chunks_exact(size.pixels())
        .zip(residuals.chunks_exact_mut(size.pixels()))
    {
        predictor.subtract(size.width, plane, to);
    }
    pack(effort, size, Kind::Alone(predictor), &[], scratch)
}

/// The part of the residuals in `scratch.bytes`, in the shorter layout.
fn pack(
    effort: Effort,
    size: Size,
    kind: Kind,
    map: &[u8],
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    let residuals = &scratch.bytes[..size.bytes()];
    let content = &mut scratch.content;
    content.clear();
    content.extend_from_slice(map);
    let layout = pairs::put(size, residuals, content);
    let mut part = vec![kind.id(layout)];
    scratch.zstd.compress(effort, content, &mut part)?;
    let escapes = content.len() - map.len() - layout.len(size);
    // With hardly any escapes and less than a byte per pixel, pairs are certainly shorter. Noise fills its bytes:
    // then three planes, each with its own Huffman code, may be shorter.
    let is_noisy = part.len() > size.pixels();
    if layout == Layout::Paired && (is_noisy || escapes > size.pixels() / SOME) {
        content.truncate(map.len());
        content.extend_from_slice(residuals);
        let mut planes = vec![kind.id(Layout::Planes)];
        scratch.zstd.compress(effort, content, &mut planes)?;
        if planes.len() < part.len() {
            return Ok(planes);
        }
    }
    Ok(part)
}

/// The part of an image predicted from the previous one, and whether most of its blocks were new.
fn encode_moved(
    effort: Effort,
    size: Size,
    planes: &[u8],
    before: &[u8],
    scratch: &mut Scratch,
) -> Result<(Vec<u8>, bool)> {
    let map = search::find(size, planes, before);
    let new = map.iter().filter(|mode| **mode == blocks::LEFT);
    let is_new = 2 * new.count() > map.len();
    let residuals = at_least(&mut scratch.bytes, size.bytes());
    blocks::subtract(size, &map, planes, before, residuals);
    Ok((pack(effort, size, Kind::Moved, &map, scratch)?, is_new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::image;

    fn kinds(size: Size, images: &[Vec<u8>]) -> Vec<u8> {
        let group = images.concat();
        let effort = Effort::level(1);
        let page = encode_group(effort, size, &group, &mut Scratch::new()).unwrap();
        let mut rest = page.as_slice();
        let lens: Vec<usize> = images
            .iter()
            .map(|_| varint::take("camera", &mut rest).unwrap())
            .collect();
        let mut kinds = Vec::new();
        for len in lens {
            kinds.push(rest[0] & 15);
            rest = &rest[len..];
        }
        kinds
    }

    #[test]
    fn each_image_is_stored_as_what_suits_it() {
        let size = Size {
            height: 40,
            width: 40,
            channels: 3,
        };
        let still = image(40, 40, 3, 1);
        let mut touched = still.clone();
        touched[1000..1030].fill(7);
        // Nothing in common with the others.
        let other = crate::testing::arbitrary_bytes(9, still.len());
        let smooth: Vec<u8> = (0..still.len())
            .map(|idx| u8::try_from(idx / 120).unwrap())
            .collect();
        let got = kinds(size, &[still.clone(), still, touched, other, smooth]);
        assert!(got[0] <= 4);
        assert_eq!(got[1], Kind::SAME);
        assert_eq!(got[2], Kind::MOVED);
        assert!(got[3] <= 4);
        assert!(got[4] <= 4);
    }
}
