//! What the episodes so far have settled for those to come: ids, the types of streams and labels, and codecs.

use std::collections::{HashMap, HashSet};

use kino_codec::FrameType;
use kino_format::{Kind, is_unprintable};

use crate::commit::Base;
use crate::draft::EpisodeDraft;
use crate::episode_info::EpisodeInfo;
use crate::error::{Result, format_at, invalid};
use crate::plan::Choice;
use crate::receipts::Receipt;
use crate::table::{EpisodeRow, Label, check_texts, refuse_name};

/// The longest id of an episode.
const MAX_ID_BYTES: usize = 255;

/// Ids, the types of streams and labels, and codecs.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    ids: HashSet<String>,
    types: HashMap<String, (Kind, FrameType)>,
    /// The stream that each variant is one of.
    variants: HashMap<String, String>,
    label_types: HashMap<String, &'static str>,
    /// The codec of each stream in the episodes of this writer.
    codecs: HashMap<String, String>,
    /// The codec of each stream of the dataset.
    base_codecs: HashMap<String, String>,
}

impl Settled {
    /// What the episodes of a dataset settle.
    pub(crate) fn by_base(base: &Base) -> Result<Self> {
        Ok(Self {
            ids: base.ids()?,
            types: base.types()?,
            variants: base.variants(),
            label_types: base.label_types()?,
            base_codecs: base.codecs(),
            ..Self::default()
        })
    }

    /// What the episodes of a dataset settle for those that take their places: ids and codecs are free.
    pub(crate) fn by_replaced(base: &Base) -> Result<Self> {
        Ok(Self {
            types: base.types()?,
            variants: base.variants(),
            label_types: base.label_types()?,
            ..Self::default()
        })
    }

    /// What an episode that is about to end settles.
    pub(crate) fn by_episode(draft: &EpisodeDraft) -> Result<Self> {
        let mut settled = Self::default();
        for stream in &draft.streams {
            let schema = &stream.schema;
            let frame = schema.frame_type().map_err(format_at("new episode"))?;
            let ty = (schema.kind, frame);
            settled.types.insert(schema.name.clone(), ty);
            let base = schema.variant_of.iter().cloned();
            let variant = base.map(|base| (schema.name.clone(), base));
            settled.variants.extend(variant);
            // A stream without frames was not tried.
            if stream.frames > 0 {
                let (name, codec) = (schema.name.clone(), schema.codec.clone());
                settled.codecs.insert(name, codec);
            }
        }
        settled.add_names(&draft.info.id, draft.info.labels.iter());
        Ok(settled)
    }

    /// What a shard of an interrupted writer settles.
    pub(crate) fn by_receipt(receipt: &Receipt) -> Result<Self> {
        let mut settled = Self {
            types: receipt.usage.types()?.into_iter().collect(),
            variants: receipt.usage.variants().collect(),
            codecs: receipt.usage.codecs().collect(),
            ..Self::default()
        };
        for (_, EpisodeRow { id, labels, .. }) in &receipt.rows {
            settled.add_names(id, labels.iter());
        }
        Ok(settled)
    }

    fn add_names<'a>(&mut self, id: &str, labels: impl Iterator<Item = (&'a String, &'a Label)>) {
        self.ids.extend((!id.is_empty()).then(|| id.to_owned()));
        self.label_types
            .extend(labels.map(|(name, label)| (name.clone(), label.column_type())));
    }

    /// Lets a stream get another type: it is replaced in all episodes that have it.
    pub(crate) fn free_type(&mut self, name: &str) {
        self.types.remove(name);
    }

    /// Adds what `more` settles; a type that is known stays as it is.
    pub(crate) fn add(&mut self, more: Self) {
        self.ids.extend(more.ids);
        for (name, ty) in more.types {
            self.types.entry(name).or_insert(ty);
        }
        self.variants.extend(more.variants);
        for (name, ty) in more.label_types {
            self.label_types.entry(name).or_insert(ty);
        }
        for (name, codec) in more.codecs {
            self.codecs.entry(name).or_insert(codec);
        }
    }

    /// Gives a stream this codec.
    pub(crate) fn decided(&mut self, name: &str, codec: &str) {
        self.codecs.insert(name.to_owned(), codec.to_owned());
    }

    /// Decides an open choice by the codec that the stream already has: here, or in the dataset unless the plan now
    /// allows a loss.
    pub(crate) fn decide(&self, name: &str, choice: &mut Choice) {
        let is_decided = |codecs: &HashMap<_, String>, choice: &mut Choice| {
            codecs.get(name).is_some_and(|codec| choice.keep(codec))
        };
        if !is_decided(&self.codecs, choice) && !choice.is_lossy() {
            is_decided(&self.base_codecs, choice);
        }
    }

    /// Refuses an episode that the table cannot hold, before an hour of packing is lost.
    pub(crate) fn check_episode(&self, info: &EpisodeInfo) -> Result<()> {
        if self.ids.contains(&info.id) {
            return Err(invalid(format!(
                "episode `{}` is already in the dataset; ids must be unique, so choose another one (or use `--prefix` for all episodes of a source)",
                info.id
            )));
        }
        if info.id.len() > MAX_ID_BYTES {
            let len = info.id.len();
            return Err(invalid(format!(
                "the episode id has {len} bytes; use at most {MAX_ID_BYTES}"
            )));
        }
        check_printable("episode id", &info.id)?;
        self.check_labels(info)?;
        check_texts(&info.clone().into_row())?;
        Ok(())
    }

    fn check_labels(&self, info: &EpisodeInfo) -> Result<()> {
        for (name, label) in &info.labels {
            if let Some(why) = refuse_name(name) {
                return Err(invalid(format!("{}: {why}", info.label())));
            }
            if !self.label_types.contains_key(name) {
                check_printable("label name", name)?;
            }
            let here = label.column_type();
            let known = self.label_types.get(name).copied().unwrap_or(here);
            if known != here {
                return Err(invalid(format!(
                    "label `{name}` of {} is a {here}, but in other episodes a {known}; use one type for it",
                    info.label()
                )));
            }
        }
        Ok(())
    }

    /// Refuses a stream whose type differs from the dataset's.
    pub(crate) fn check_type(&self, name: &str, kind: Kind, frame: &FrameType) -> Result<()> {
        match self.types.get(name) {
            Some((known_kind, known_frame)) if (*known_kind, known_frame) != (kind, frame) => {
                Err(invalid(format!(
                    "stream `{name}` is {} {frame} here, but {} {known_frame} in other episodes; \
                     rename it or convert it",
                    kind.name(),
                    known_kind.name()
                )))
            }
            Some(_) => Ok(()),
            // A stream that the dataset already has keeps its name.
            None => check_printable("stream name", name),
        }
    }

    /// Refuses a variant where the dataset has a stream of that name that is none, and the other way round.
    pub(crate) fn check_variant(&self, name: &str, variant_of: Option<&str>) -> Result<()> {
        let known = self.variants.get(name).map(String::as_str);
        if !self.types.contains_key(name) || known == variant_of {
            return Ok(());
        }
        let what = |base: Option<&str>| match base {
            Some(base) => format!("a variant of `{base}`"),
            None => "a stream of its own".to_owned(),
        };
        Err(invalid(format!(
            "stream `{name}` is {} here, but {} in other episodes; rename one of them",
            what(variant_of),
            what(known)
        )))
    }
}

/// Refuses new names that cannot be displayed as they are: readers escape them, and people would not find them.
fn check_printable(what: &str, name: &str) -> Result<()> {
    match name.chars().find(|&c| is_unprintable(c)) {
        Some(c) => Err(invalid(format!(
            "{what} {name:?} contains the character U+{:04X}, which controls a terminal or the direction of text; remove it",
            u32::from(c)
        ))),
        None => Ok(()),
    }
}
