//! Where a repacked dataset comes from: recorded in its attributes, and what a resumed repack is recognised by.

use serde_json::{Value, json};

use crate::attributes::JsonMap;
use crate::commit::SourceRecord;
use crate::dataset::Dataset;
use crate::part::Part;
use crate::plan::Plan;
use crate::writer::DatasetWriter;
use crate::writer_options::{Start, WriterOptions};

use super::Repack;

/// The attribute that names the datasets and versions that one was made from, the oldest first.
const LINEAGE: &str = "repacked_from";

/// The attribute that lists the recordings that a dataset was packed from.
const SOURCES: &str = "sources";

/// What identifies the work, so that only the same is resumed.
pub(super) fn identity(
    dataset: &Dataset,
    part: &Part,
    plan: &Plan,
) -> impl Iterator<Item = (String, String)> {
    let plan = serde_json::to_string(plan).unwrap_or_default();
    let settings = [
        ("repack_of", dataset.id().to_owned()),
        ("repack_plan", plan),
        ("streams", part.streams.join(" ")),
        ("exclude", part.exclude.join(" ")),
        ("episodes", part.episodes.join(" ")),
    ];
    settings
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
}

/// The version that a dataset was made from, and how.
pub(super) fn made_from(dataset: &Dataset, part: &Part, plan: &Plan) -> Value {
    let mut made_from = json!({
        "dataset": dataset.path().display().to_string(),
        "version": dataset.manifest().version,
        "id": dataset.id(),
        "plan": serde_json::to_value(plan).unwrap_or_default(),
    });
    let part = [
        ("streams", &part.streams),
        ("exclude", &part.exclude),
        ("episodes", &part.episodes),
    ];
    for (name, items) in part {
        if !items.is_empty() {
            made_from[name] = json!(items);
        }
    }
    made_from
}

/// The attributes of a dataset, and that another was made from it.
pub(super) fn attributes(dataset: &Dataset, made_from: Value) -> JsonMap {
    let mut attributes = dataset.manifest().attributes.clone();
    let lineage = attributes.entry(LINEAGE);
    let lineage = lineage.or_insert_with(|| Value::Array(Vec::new()));
    if let Some(lineage) = lineage.as_array_mut() {
        lineage.push(made_from);
    }
    attributes
}

/// Adds the recordings and attributes of a dataset to those of the one that it is added to.
pub(super) fn add_sources(dataset: &Dataset, made_from: Value, writer: &mut DatasetWriter) {
    let mut attributes = dataset.manifest().attributes.clone();
    let mut records = match attributes.remove(SOURCES) {
        Some(Value::Array(records)) => records,
        _ => Vec::new(),
    };
    records.push(made_from);
    let name = dataset.path().file_stem();
    let name = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for record in records {
        writer.add_source(SourceRecord {
            name: name.clone(),
            attributes: std::mem::take(&mut attributes),
            record,
        });
    }
}

/// Whether `made` is what this repack makes: a commit is all or nothing.
pub(super) fn is_made(repack: &Repack, made: &Dataset) -> bool {
    let (plan, part) = (&repack.options.writer.plan, &repack.options.part);
    let lineage = made.manifest().attributes.get(LINEAGE);
    let last = lineage.and_then(Value::as_array).and_then(|all| all.last());
    let mut wanted = made_from(&repack.dataset, part, plan);
    last.is_some_and(|last| {
        // The dataset may be named by another path.
        wanted["dataset"] = last["dataset"].clone();
        *last == wanted
    })
}

/// The writer's options: the choice is made, and events are found before the first stream is written.
pub(super) fn writer_options(repack: &Repack) -> WriterOptions {
    let options = &repack.options;
    let mut settings = options.writer.clone();
    let identity = identity(&repack.dataset, &options.part, &options.writer.plan);
    settings.settings.extend(identity);
    settings.plan = Plan::lossless();
    settings
}

/// The attributes of a new dataset.
pub(super) fn new_attributes(repack: &Repack) -> JsonMap {
    let (dataset, options) = (&repack.dataset, &repack.options);
    let made_from = made_from(dataset, &options.part, &options.writer.plan);
    let mut attributes = attributes(dataset, made_from);
    attributes.extend(options.writer.attributes.clone());
    attributes
}

pub(super) fn message(dataset: &Dataset, start: Start) -> String {
    let version = dataset.manifest().version;
    match start {
        Start::Replace => format!("repack version {version} in place"),
        _ => format!("repack version {version} of {}", dataset.path().display()),
    }
}
