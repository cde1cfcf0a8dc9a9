//! Lossy encodings that frames went through before the one they are stored with, in words.

use kino_dataset::{Generation, Kind, StreamSummary, total_error};
use serde_json::{Value, json};

use crate::output::{count, one_line};

/// A line per stream whose frames were lossy before:
/// `wrist: 2 lossy generations: jpeg:q=95,sub=444 (47.1 dB), then jpeg:q=80,sub=444 (41.2 dB against that)`.
pub(crate) fn lines<'a>(streams: impl Iterator<Item = &'a StreamSummary>) -> String {
    let earlier = streams.filter(|stream| !stream.generations.is_empty());
    earlier
        .map(|stream| format!("{}\n", line(stream)))
        .collect()
}

fn line(stream: &StreamSummary) -> String {
    let name = one_line(&stream.name);
    let all = stream.lossy_generations();
    let number = |idx: usize| if idx > 0 { " against that" } else { "" };
    let each = all.iter().enumerate().map(|(idx, one)| {
        let against = number(idx);
        format!("{} ({})", one.codec, error(one, against))
    });
    let each = each.collect::<Vec<_>>().join(", then ");
    let total = total_error(&all).filter(|_| stream.kind != Kind::Image && all.len() > 1);
    let total = total.map_or(String::new(), |total| {
        format!("; together within {total:.3e} of the original")
    });
    let after = if all.len() == stream.generations.len() {
        ", then without further loss"
    } else {
        ""
    };
    let generations = count(all.len(), "lossy generation");
    format!("{name}: {generations}: {each}{after}{total}")
}

fn error(generation: &Generation, against: &str) -> String {
    match (generation.psnr_db, generation.max_abs_error) {
        (Some(psnr), _) => format!("{psnr:.1} dB{against}"),
        (None, Some(error)) => format!("within {error:.3e}{against}"),
        (None, None) => "not measured".to_owned(),
    }
}

/// For programs.
pub(crate) fn to_json(generations: &[Generation]) -> Value {
    let one = |one: &Generation| json!({"codec": one.codec, "max_abs_error": one.max_abs_error, "psnr_db": one.psnr_db});
    generations.iter().map(one).collect()
}
