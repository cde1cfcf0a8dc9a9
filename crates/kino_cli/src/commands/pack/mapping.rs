//! `kinograph pack --suggest-mapping`: a first draft of a mapping file.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use kino_import::ImportOptions;

use crate::Outcome;
use crate::output::{note, print};

/// Writes a draft of a mapping to a new file, or to stdout if the target is `-`.
pub(super) fn suggest(source: &Path, target: &Path, import: &ImportOptions) -> Result<Outcome> {
    let draft = kino_import::suggest_mapping(source, import)?;
    if target == Path::new("-") {
        print(&draft)?;
        return Ok(Outcome::Done);
    }
    let shown = target.display();
    let file = File::create_new(target);
    let written = file.and_then(|mut file| file.write_all(draft.as_bytes()));
    written.with_context(|| format!("cannot write the draft to {shown}; choose another name"))?;
    note(&format!(
        "wrote a draft of a mapping to {shown}; check it, then pass it with --mapping"
    ));
    Ok(Outcome::Done)
}
