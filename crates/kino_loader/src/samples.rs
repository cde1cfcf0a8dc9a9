//! From the windows of a dataset to what is ordered.
//!
//! ```text
//! Samples ── counts, sizes, shards ──▶ Source ──▶ Order            windows in a shuffled order
//!         └─ frames per episode ─────▶ LengthOrder                 whole episodes, by length
//! ```

use kino_dataset::{CountSource, DatasetError, Result, Samples};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::decodes::Decodes;
use crate::order::{
    AutoShuffle, Batching, Deal, LengthOrder, LengthSettings, Oversize, Settings, Shuffle, Source,
};

impl Source {
    /// The windows of a dataset, with all that any order may ask for.
    pub fn of(windows: &Samples) -> Result<Self> {
        Ok(Self {
            name: windows.dataset().path().display().to_string(),
            sizes: Some(windows.sizes().into()),
            shards: Some(shards(windows).into()),
            ..Self::new(windows.id()?, windows.counts())
        })
    }

    /// From `epoch` on, samples are read from other windows: the same episodes, packed in another way. From epoch 0 on,
    /// none is read from the first windows, which then only say what the order is.
    pub fn add_variant(&mut self, first: &Samples, epoch: u64, other: &Samples) -> Result<()> {
        check_same_episodes(first, other)?;
        if self.variants.is_empty() && epoch > 0 {
            self.variants.push((0, self.id.clone()));
        }
        if self.variants.last().is_some_and(|(last, _)| *last >= epoch) {
            return Err(invalid(format!(
                "a variant from epoch {epoch} on; epochs must rise, and each can have only one"
            )));
        }
        self.variants.push((epoch, other.id()?));
        Ok(())
    }
}

impl Settings {
    /// Reads settings as a user writes them, in JSON: what is missing has its default, and a `shuffle` that is missing or
    /// `{"auto": {"unit": …}}` is chosen from the samples and the batch, never from the machine. Without `lanes`, groups are
    /// dealt in parts, so that any number of ranks share few frames.
    pub fn choose(
        written: &Value,
        parts: &[(Source, f64)],
        samples: &[Samples],
    ) -> crate::Result<Self> {
        let mut written = written.clone();
        let auto = match written.get("shuffle") {
            None => Some(Value::Null),
            Some(shuffle) => shuffle.get("auto").cloned(),
        };
        if auto.is_some() {
            written["shuffle"] = json!(Shuffle::Global);
        }
        let wrong = |error| crate::error::invalid(format!("the options of the order: {error}"));
        let has_lanes = written.get("lanes").is_some();
        let mut settings: Self = serde_json::from_value(written).map_err(wrong)?;
        if !has_lanes {
            settings.deal = Deal::Parts;
        }
        let Some(auto) = auto else {
            return Ok(settings.without_unused_deal());
        };
        let unit = auto.get("unit").cloned().map(serde_json::from_value);
        let auto = AutoShuffle {
            batch_size: settings.batch_size,
            lanes: settings.lanes,
            deal: settings.deal,
            decodes: Decodes::most(samples)?,
            unit: unit.transpose().map_err(wrong)?.unwrap_or_default(),
        };
        settings.shuffle = auto.choose(parts)?;
        Ok(settings.without_unused_deal())
    }
}

impl LengthOrder {
    /// The order of the whole episodes that these windows cover; an episode is as long as the longest of its requested streams.
    pub fn of(
        windows: &Samples,
        settings: LengthSettings,
        measure: LengthMeasure,
    ) -> crate::Result<Self> {
        let mut lengths = lengths(windows)?;
        let frames = lengths.clone();
        if let Some(most) = measure.max_frames {
            if most == 0 {
                return Err(crate::error::invalid(
                    "`max_frames` is 0; it must be at least 1",
                ));
            }
            lengths.iter_mut().for_each(|one| *one = most.min(*one));
        }
        if measure.unit == LengthUnit::Kibibytes {
            for ((length, &frames), &bytes) in lengths.iter_mut().zip(&frames).zip(windows.sizes())
            {
                let bytes = u128::from(bytes) * u128::from(*length) / u128::from(frames.max(1));
                *length = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
            }
            check_bytes(&lengths, &settings)?;
        }
        Ok(Self::new(windows.id()?, lengths, settings)?.cut_to(measure.max_frames))
    }
}

/// How long episodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LengthMeasure {
    /// Longer episodes are cut to their first frames.
    pub max_frames: Option<u32>,
    /// What is counted.
    pub unit: LengthUnit,
}

/// What the length of an episode counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LengthUnit {
    /// Frames of its longest requested stream.
    #[default]
    Frames,
    /// Decoded bytes of all requested streams, in KiB: what decoding and the memory of a batch cost.
    Kibibytes,
}

/// Refuses an episode that exceeds a budget of bytes, in those terms.
fn check_bytes(lengths: &[u32], settings: &LengthSettings) -> crate::Result<()> {
    let Batching::Budget { frames: budget } = settings.batching else {
        return Ok(());
    };
    let exceeds = |length: &u32| u64::from(*length) > budget;
    match lengths.iter().position(exceeds) {
        Some(episode) if settings.oversize == Oversize::Refuse => {
            Err(crate::error::invalid(format!(
                "episode {episode} has {} KiB, decoded, more than the budget of {budget}; raise the budget to at least {} KiB, \
                 cut episodes with `max_frames`, skip it, or let it be a batch of its own",
                lengths[episode],
                lengths.iter().max().unwrap_or(&0)
            )))
        }
        _ => Ok(()),
    }
}

/// Numbers that are equal for episodes of one shard.
fn shards(windows: &Samples) -> Vec<u32> {
    let table = windows.dataset().table();
    let mut known = std::collections::HashMap::new();
    let rows = windows.episodes().iter();
    rows.map(|&row| {
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let shard = table.shard(row as usize).copied().unwrap_or_default();
        *known.entry(shard).or_insert(next)
    })
    .collect()
}

/// The frames of each selected episode.
fn lengths(windows: &Samples) -> Result<Vec<u32>> {
    let table = windows.dataset().table();
    let to_u32 = |frames: u64| u32::try_from(frames).unwrap_or(u32::MAX);
    if windows.source() == CountSource::Table {
        // Then every requested stream is as long as the table says.
        let rows = windows.episodes().iter();
        return Ok(rows
            .map(|&row| to_u32(table.frames(row as usize).unwrap_or(0)))
            .collect());
    }
    let requested = windows.request().windows.len();
    let longest = |position| {
        let episode = windows.episode(position)?;
        let streams = (0..requested).filter_map(|window| episode.stream(window));
        let frames = streams.map(|stream| stream.len() as u64).max();
        Ok(to_u32(frames.unwrap_or(0)))
    };
    (0..windows.episodes().len()).map(longest).collect()
}

/// Refuses windows that a curriculum cannot switch between.
fn check_same_episodes(first: &Samples, other: &Samples) -> Result<()> {
    let id = |windows: &Samples, position: usize| {
        let row = windows.episodes().get(position).copied();
        row.and_then(|row| {
            windows
                .dataset()
                .table()
                .id(row as usize)
                .map(str::to_owned)
        })
    };
    let count = first.episodes().len().max(other.episodes().len());
    for position in 0..count {
        let (left, right) = (id(first, position), id(other, position));
        if left != right {
            return Err(invalid(format!(
                "a variant must have the same episodes in the same order: episode {position} is {} in {} and {} in {}",
                name_of(left),
                first.dataset().path().display(),
                name_of(right),
                other.dataset().path().display()
            )));
        }
        if first.counts().get(position) != other.counts().get(position) {
            return Err(invalid(format!(
                "a variant must have the same windows: episode {} has {} in {} and {} in {}; use one request and recordings of equal length",
                name_of(left),
                first.counts().get(position).unwrap_or(&0),
                first.dataset().path().display(),
                other.counts().get(position).unwrap_or(&0),
                other.dataset().path().display()
            )));
        }
    }
    Ok(())
}

fn name_of(id: Option<String>) -> String {
    id.map_or("none".to_owned(), |id| format!("`{id}`"))
}

fn invalid(what: String) -> DatasetError {
    DatasetError::Invalid { what }
}
