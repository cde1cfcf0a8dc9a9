//! The tasks of an export: a list of texts, and which frames have which.
//!
//! The text of a frame is that of the text stream `task`, if there is one, otherwise the task of the episode. A
//! recording that came from LeRobot has its indexes in `task_index`: they stay if they number the same texts without a
//! gap.

use std::collections::{BTreeMap, HashMap, HashSet};

use kino_codec::{Dtype, FrameType};
use kino_dataset::Episode;

use crate::error::Result;
use crate::export::{EpisodeOutline, Outline};

/// The stream that has the task of each frame.
pub(super) const STREAM: &str = "task";

pub(super) struct Tasks {
    /// By number.
    pub(super) texts: Vec<String>,
    /// For each episode where each task begins, and its number.
    pub(super) runs: Vec<Vec<(usize, usize)>>,
}

/// Where each task of an episode begins, and its text.
type Runs = Vec<(usize, String)>;

impl Tasks {
    /// Reads the streams that assign tasks to frames, and no other frames.
    pub(super) fn read(outline: &Outline) -> Result<Self> {
        let mut of_episodes = Vec::with_capacity(outline.episodes.len());
        let mut numbers = Some(Numbers::default());
        for episode in &outline.episodes {
            let source = outline.dataset.find(&episode.id)?;
            let runs = read_runs(episode, &source)?;
            if let Some(known) = &mut numbers
                && !known.add(&runs, &read_numbers(&source, episode.frames())?)
            {
                numbers = None;
            }
            of_episodes.push(runs);
        }
        let texts = numbers.and_then(Numbers::finish);
        let texts = texts.unwrap_or_else(|| by_appearance(&of_episodes));
        let numbers: HashMap<_, _> = texts.iter().zip(0..).collect();
        let number = |text: &String| numbers.get(text).copied().unwrap_or(0);
        let runs = of_episodes.iter().map(|runs| {
            let numbered = runs.iter().map(|(start, text)| (*start, number(text)));
            numbered.collect()
        });
        let runs = runs.collect();
        Ok(Self { texts, runs })
    }

    /// The texts of an episode, in the order of `listed` if those are the same.
    pub(super) fn of_episode(&self, episode: usize, listed: Option<Vec<String>>) -> Vec<String> {
        let mut texts = Vec::new();
        for &(_, task) in &self.runs[episode] {
            let text = &self.texts[task];
            if !texts.contains(text) {
                texts.push(text.clone());
            }
        }
        let sorted = |texts: &[String]| {
            let mut texts = texts.to_vec();
            texts.sort();
            texts
        };
        match listed {
            Some(listed) if sorted(&listed) == sorted(&texts) => listed,
            _ => texts,
        }
    }
}

fn read_runs(episode: &EpisodeOutline, source: &Episode) -> Result<Runs> {
    let has_stream = source.streams().any(|schema| schema.name == STREAM);
    if has_stream {
        let stream = source.stream(STREAM)?;
        if *stream.frame_type() == FrameType::Text && stream.len() == episode.frames() {
            let mut runs = Runs::new();
            for (frame, text) in stream.read_text(0..stream.len())?.into_iter().enumerate() {
                if runs.last().is_none_or(|(_, last)| *last != text) {
                    runs.push((frame, text));
                }
            }
            return Ok(runs);
        }
    }
    Ok(vec![(0, episode.task.clone().unwrap_or_default())])
}

/// The `task_index` of each frame; `None` without such a stream.
fn read_numbers(source: &Episode, frames: usize) -> Result<Vec<i64>> {
    if !source.streams().any(|schema| schema.name == "task_index") {
        return Ok(Vec::new());
    }
    let stream = source.stream("task_index")?;
    let is_number = |ty: &kino_codec::ValueType| ty.dtype() == Dtype::I64 && ty.elements() == 1;
    if !stream.frame_type().as_values().is_some_and(is_number) || stream.len() != frames {
        return Ok(Vec::new());
    }
    let packed = stream.read(0..frames)?;
    let numbers = packed.as_chunks().0.iter();
    Ok(numbers.map(|&eight| i64::from_le_bytes(eight)).collect())
}

/// The indexes that the recording gave its tasks.
#[derive(Default)]
struct Numbers(BTreeMap<i64, String>);

impl Numbers {
    /// Adds those of an episode; false if they contradict the texts.
    fn add(&mut self, runs: &Runs, numbers: &[i64]) -> bool {
        if numbers.is_empty() {
            return false;
        }
        let ends = runs.iter().skip(1).map(|(start, _)| *start);
        let ends = ends.chain([numbers.len()]);
        runs.iter().zip(ends).all(|((start, text), end)| {
            let Some(&[first, ref rest @ ..]) = numbers.get(*start..end) else {
                return false;
            };
            let known = self.0.entry(first).or_insert_with(|| text.clone());
            known == text && rest.iter().all(|number| *number == first)
        })
    }

    /// The texts by index, if they are numbered 0, 1, 2, … without duplicates.
    fn finish(self) -> Option<Vec<String>> {
        let is_dense = self.0.keys().copied().eq((0..).take(self.0.len()));
        let mut texts: Vec<_> = self.0.values().collect();
        texts.sort();
        texts.dedup();
        let is_unique = texts.len() == self.0.len();
        (is_dense && is_unique).then(|| self.0.into_values().collect())
    }
}

fn by_appearance(of_episodes: &[Runs]) -> Vec<String> {
    let (mut texts, mut known) = (Vec::new(), HashSet::new());
    for (_, text) in of_episodes.iter().flatten() {
        if known.insert(text) {
            texts.push(text.clone());
        }
    }
    texts
}
