//! Any bytes as a page of the `camera` codec: bare, and as parts with whole zstd frames of the right sizes.

#![no_main]

use kino_fuzz::{Input, image, put_length, with_scratch, zstd_frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(mut input) = Input::new(data) else {
        return;
    };
    let codec = kino_codec::codec("camera").expect("a known codec");
    let ty = image(input.kind);
    with_scratch(|scratch| {
        input.decode(&*codec, &ty, scratch);
        input.frames %= 9;
        let Some((kinds, bytes)) = input.page().split_at_checked(input.frames) else {
            return;
        };
        if bytes.is_empty() {
            return;
        }
        let mut bytes = bytes.iter().copied().cycle();
        let (mut page, mut parts) = (Vec::new(), Vec::new());
        for &kind in kinds {
            let mut part = vec![kind];
            part.extend(zstd_frame(&content(kind, &ty, &mut bytes), scratch));
            put_length(part.len(), &mut page);
            parts.extend(part);
        }
        page.extend(parts);
        input.with_page(&page).decode(&*codec, &ty, scratch);
    });
});

/// Content of the length that the kind requires; in a map, mostly valid values.
fn content(kind: u8, ty: &kino_codec::ValueType, bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
    let (height, width) = (ty.shape()[0], ty.shape()[1]);
    let pixels = height * width;
    let mut content = Vec::new();
    match kind & 15 {
        5 => {
            let blocks = height.div_ceil(8) * width.div_ceil(8);
            content.extend(
                bytes
                    .take(blocks)
                    .map(|mode| if mode < 250 { mode % 82 } else { mode }),
            );
        }
        6 => return content,
        _ => {}
    }
    let map = content.len();
    if kind & 16 == 0 {
        content.extend(bytes.take(ty.elements()));
    } else {
        content.extend(bytes.take(ty.elements().saturating_sub(pixels)));
        let pairs = content
            .get(map + pixels..map + 2 * pixels)
            .unwrap_or_default();
        let escapes = pairs.iter().filter(|pair| **pair == 0x88).count();
        content.extend(bytes.take(2 * escapes));
    }
    content
}
