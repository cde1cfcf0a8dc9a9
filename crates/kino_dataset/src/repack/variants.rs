//! The variants that a repack adds to a dataset: more encodings of its streams.
//!
//! ```text
//! dataset: wrist, actions            plan: match = "wrist", variant = "small"            added: wrist@small
//! ```

use kino_format::variant_stream;

use crate::dataset::Dataset;
use crate::error::{Result, invalid};
use crate::manifest::StreamSummary;
use crate::part::Part;
use crate::plan::Plan;

/// The variants that the plan has rules for and the dataset has not, as streams without episodes.
pub(super) fn added_variants(dataset: &Dataset, plan: &Plan, part: &Part) -> Vec<StreamSummary> {
    let streams = &dataset.manifest().streams;
    let mut added = Vec::new();
    let bases = streams.iter().filter(|one| one.variant_of.is_none());
    for base in bases.filter(|base| part.takes_stream(&base.name)) {
        for variant in plan.variants(&base.name, base.kind) {
            let name = variant_stream(&base.name, variant);
            if !streams.iter().any(|one| one.name == name) {
                added.push(StreamSummary::variant_to_be(base, name));
            }
        }
    }
    added
}

/// Refuses rules for variants of streams that the dataset does not have, or whose names are taken.
pub(super) fn check_variants(dataset: &Dataset, plan: &Plan) -> Result<()> {
    let streams = || dataset.manifest().streams.iter();
    let bases = streams().filter(|one| one.variant_of.is_none());
    let unused = plan.unused_rules(bases.clone().map(|one| (one.name.as_str(), one.kind)));
    if let Some((rule, variant)) = unused
        .iter()
        .find_map(|rule| Some((rule, rule.variant.as_ref()?)))
    {
        return Err(invalid(format!(
            "the plan has variant `{variant}` of {}, but the dataset has no such stream",
            rule.subject()
        )));
    }
    for base in bases {
        for variant in plan.variants(&base.name, base.kind) {
            let name = variant_stream(&base.name, variant);
            if streams().any(|one| one.name == name && one.variant_of.is_none()) {
                return Err(invalid(format!(
                    "the plan has variant `{variant}` of `{}`, but the dataset has a stream `{name}` that is not a variant; choose \
                     another name for the variant",
                    base.name
                )));
            }
        }
    }
    Ok(())
}
