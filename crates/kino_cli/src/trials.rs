//! Which codecs were tried on the first frames of a stream, and how they compare.

use kino_dataset::{Trial, Tried};
use serde_json::{Value, json};

use crate::output::{count, one_line};

/// A line per stream that was tried: `front: camera, 0.52 of the size of predict on the first 64 frames`.
pub(crate) fn lines<'a>(trials: impl Iterator<Item = (&'a str, Option<&'a Trial>)>) -> String {
    let tried = trials.filter_map(|(stream, trial)| Some((stream, trial?)));
    let lines = tried.map(|(stream, trial)| format!("{}: {}\n", one_line(stream), line(trial)));
    lines.collect()
}

fn line(trial: &Trial) -> String {
    let bytes = trial.chosen.bytes;
    let of = |other: &Tried| {
        format!(
            "{} of the size of {}",
            share(bytes, other.bytes),
            name(other)
        )
    };
    let others: Vec<_> = trial.others.iter().map(of).collect();
    let is_larger = trial.others.iter().any(|other| other.bytes < bytes);
    let is_larger = is_larger && trial.chosen.is_lossless();
    let why = if is_larger {
        ", and faster to decode"
    } else {
        ""
    };
    let frames = count(trial.frames, "frame");
    format!(
        "{}, {} on the first {frames}{why}",
        name(&trial.chosen),
        others.join(" and ")
    )
}

/// The codec; a lossless one without its parameters.
fn name(tried: &Tried) -> &str {
    let name = tried
        .codec
        .split(':')
        .next()
        .filter(|_| tried.is_lossless());
    name.unwrap_or(&tried.codec)
}

/// `0.52`.
#[expect(clippy::cast_precision_loss, reason = "a ratio for display")]
fn share(bytes: u64, of: u64) -> String {
    format!("{:.2}", bytes as f64 / of.max(1) as f64)
}

/// For programs.
pub(crate) fn to_json(trial: Option<&Trial>) -> Value {
    let Some(trial) = trial else {
        return Value::Null;
    };
    let tried = |one: &Tried| json!({"codec": one.codec, "bytes": one.bytes});
    let others: Vec<_> = trial.others.iter().map(tried).collect();
    json!({"frames": trial.frames, "chosen": tried(&trial.chosen), "others": others})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(codec: &str, bytes: u64) -> Tried {
        Tried {
            codec: codec.to_owned(),
            bytes,
        }
    }

    #[test]
    fn a_line_says_what_was_chosen_and_by_how_much() {
        let smaller = Trial {
            frames: 64,
            chosen: tried("camera:level=3,group=4", 52),
            others: vec![tried("predict:level=3", 100)],
        };
        let faster = Trial {
            frames: 1,
            chosen: tried("camera:level=3,group=4", 101),
            others: vec![tried("predict:level=3", 100)],
        };
        let lossless = Trial {
            frames: 64,
            chosen: tried("camera:level=3,group=4", 50),
            others: vec![
                tried("jpeg:q=95,sub=444", 200),
                tried("predict:level=3", 100),
            ],
        };
        let trials = [
            ("front", Some(&smaller)),
            ("joints", None),
            ("b\n", Some(&faster)),
            ("flat", Some(&lossless)),
        ];
        assert_eq!(
            lines(trials.into_iter()),
            "front: camera, 0.52 of the size of predict on the first 64 frames\n\
             b\\n: camera, 1.01 of the size of predict on the first 1 frame, and faster to decode\n\
             flat: camera, 0.25 of the size of jpeg:q=95,sub=444 and 0.50 of the size of predict on the first 64 frames\n"
        );
    }
}
