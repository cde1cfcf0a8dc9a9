//! How to write a dataset, and what its folder may already contain.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::error::{Result, invalid};
use crate::plan::Plan;

/// How to write a dataset.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Codec, bound and page size per stream.
    pub plan: Plan,
    /// A shard is closed once it has this many bytes.
    pub shard_bytes: u64,
    /// Memory limit for frames waiting to be encoded or written, including the codecs' working memory. A single block
    /// may exceed it: a page, or a run of up to 4,194,304 values, which takes about 200 MB.
    pub memory_bytes: usize,
    /// Worker threads; 0 means one per core.
    pub threads: usize,
    /// Metadata of the whole dataset (`env_args`, …), kept in the manifest.
    pub attributes: serde_json::Map<String, serde_json::Value>,
    /// What is being written and how, by name: [`Start::Resume`] only resumes work with the same settings. The plan
    /// is always included.
    pub settings: BTreeMap<String, String>,
    /// The folder of the files that pages are linked to, as an absolute path; `None` if no page is linked.
    pub link_root: Option<String>,
    /// When the version says it was created; `None` for the time of the commit. With a time, the same episodes give the
    /// same version id.
    pub created: Option<SystemTime>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            plan: Plan::lossless(),
            shard_bytes: 128 << 20,
            memory_bytes: 512 << 20,
            threads: 0,
            attributes: serde_json::Map::new(),
            settings: BTreeMap::new(),
            link_root: None,
            created: None,
        }
    }
}

/// What the target of a writer may already contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing: an existing dataset or an interrupted pack is refused.
    New,
    /// A dataset, to which episodes are added.
    Append,
    /// A dataset whose newest version stays readable: the commit makes a version in which the episodes written here
    /// take the place of those with the same ids. Finished shards of an interrupted writer with the same plan and
    /// settings are taken up.
    Replace,
    /// A dataset, which is replaced when this writer commits. Until then readers see the old one; then its files are gone.
    Overwrite,
    /// Nothing, a dataset, or the work of an interrupted writer with the same plan and settings, whose finished shards
    /// are taken up.
    Resume,
}

/// A time as a manifest has it: RFC 3339 in UTC, in whole seconds.
pub fn to_time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The same back.
pub fn parse_time(text: &str) -> Result<SystemTime> {
    let time = humantime::parse_rfc3339(text).ok();
    // Later ones have no such text.
    let time = time.filter(|time| *time < SystemTime::UNIX_EPOCH + MAX_TIME);
    time.ok_or_else(|| {
        invalid(format!(
            "{text:?} is not a time; write it as 2026-11-19T12:00:00Z"
        ))
    })
}

/// The year 9999 ends before.
const MAX_TIME: Duration = Duration::from_secs(253_402_300_800);

impl WriterOptions {
    /// Refuses a plan that cannot be written with.
    pub(crate) fn check(&self) -> Result<()> {
        check_quality(&self.plan)?;
        self.plan.check()?;
        self.plan.check_measured()
    }

    /// The settings that resumed work, and parts of one pack, must share, including the plan.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let plan = serde_json::to_string(&self.plan).unwrap_or_default();
        let mut settings = self.settings.clone();
        settings.insert("plan".to_owned(), plan);
        settings
    }
}

fn check_quality(plan: &Plan) -> Result<()> {
    match plan.quality.filter(|quality| !(1..=100).contains(quality)) {
        Some(quality) => Err(invalid(format!(
            "quality {quality} is out of range; use 1 to 100"
        ))),
        None => Ok(()),
    }
}
