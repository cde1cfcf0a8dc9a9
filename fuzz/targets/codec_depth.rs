//! Any bytes as a page of the `depth` codec: bare, and as streams with whole zstd frames.

#![no_main]

use kino_fuzz::{Input, distances, put_length, repeated, with_scratch, zstd_frame};
use libfuzzer_sys::fuzz_target;

/// More streams than any kind has.
const MAX_STREAMS: usize = 24;

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let codec = kino_codec::codec("depth").expect("a known codec");
    let ty = distances(input.kind);
    with_scratch(|scratch| {
        input.decode(&*codec, &ty, scratch);
        let Some((&kind, mut rest)) = input.page().split_first() else {
            return;
        };
        let mut page = vec![kind];
        for nr in 0..MAX_STREAMS {
            let Some((&len, after)) = rest.split_first() else {
                break;
            };
            let (content, after) = after.split_at(usize::from(len).min(after.len()));
            rest = after;
            // Planes of residuals have a byte per pixel: a random page hardly ever gets that right.
            let is_plane = kind < 24 && !content.is_empty() && (nr > 0 || kind < 16);
            let content: Vec<u8> = if is_plane {
                repeated(content, ty.elements())
            } else {
                content.to_vec()
            };
            let frame = zstd_frame(&content, scratch);
            put_length(frame.len(), &mut page);
            page.extend(frame);
        }
        input.with_page(&page).decode(&*codec, &ty, scratch);
    });
});
