//! Drafts of mappings: the content of a source, as a TOML file to edit and pass to `--mapping`.

use std::path::Path;

use serde_json::Value;

use crate::clock::unit_ns;
use crate::error::{ImportError, Result, invalid};
use crate::open::{ImportOptions, check, open};
use crate::source::{ClockSpec, EpisodeSpec, Source};
use crate::{formats, hdf5};

/// Drafts a mapping of a source, for the formats that read one: HDF5, MCAP and plain folders.
///
/// The draft can be passed to [`open`](crate::open()) unchanged, in [`ImportOptions::mapping`]; comments in it say what
/// was guessed and what needs filling in.
pub fn suggest_mapping(path: &Path, options: &ImportOptions) -> Result<String> {
    let format = check(path, options)?;
    let options = ImportOptions {
        mapping: None,
        ..options.clone()
    };
    match format.name {
        "hdf5" => hdf5::suggest(&formats::hdf5_files(path)?, &options),
        "mcap" => Ok(mcap(&open(path, &options)?)),
        "folder" => folder(path, &options),
        name => Err(invalid(format!(
            "{}: the format `{name}` does not take a mapping, because its files define the streams; pack it without one",
            path.display()
        ))),
    }
}

/// A string in TOML syntax.
pub(crate) fn quoted(text: &str) -> String {
    // JSON escapes everything that TOML does, except for one control character.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A text that is safe inside a comment.
pub(crate) fn comment(text: &str) -> String {
    text.escape_debug().to_string().replace("\\\"", "\"")
}

fn head(source: &Source) -> String {
    let first = source.episodes().first().map_or("", |episode| &episode.id);
    let noun = match source.episodes().len() {
        1 => "episode",
        _ => "episodes",
    };
    format!(
        "# A draft of a mapping. Check it, then:\n\
         #   kinograph pack --mapping THIS_FILE SOURCE TARGET\n\
         # Every key is described in docs/guide/import.md.\n\n\
         # {} {noun}, the first is {}.\n",
        source.episodes().len(),
        comment(first)
    )
}

/// Everything is imported; the topics are listed to choose from.
fn mcap(source: &Source) -> String {
    let mut text = head(source);
    text.push_str(
        "# [episodes]\n# by = \"topic\"  # or \"gap\" with gap_s = 3.0\n# topic = \"/episode\"\n\n",
    );
    text.push_str("# task = \"open the drawer\"\n\n");
    text.push_str("# Topics that no [[stream]] names: \"leave\" to import only those below.\nothers = \"keep\"\n");
    if let Some(episode) = source.episodes().first() {
        for stream in &episode.streams {
            let topic = stream.attributes.get("topic").and_then(Value::as_str);
            let topic = topic.unwrap_or(&stream.name);
            let about = comment(&stream.frame.to_string());
            text.push_str(&format!(
                "\n# [[stream]]\n# name = {}  # {} {about}\n# topic = {}\n",
                quoted(&stream.name),
                stream.kind.name(),
                quoted(topic)
            ));
            let field = stream.name.strip_prefix(topic.trim_start_matches('/'));
            if let Some(field) = field.and_then(|rest| rest.strip_prefix('/')) {
                text.push_str(&format!("# field = {}\n", quoted(&field.replace('/', "."))));
            }
        }
    }
    text
}

/// Every field of the first episode as a stream.
fn folder(path: &Path, options: &ImportOptions) -> Result<String> {
    let (source, has_rate) = match crate::folder::open(path, options) {
        Ok(source) => (source, true),
        // Nothing gives the timestamps: that must be filled in.
        Err(ImportError::InvalidArgument { .. }) if options.rate_hz.is_none() => {
            let options = ImportOptions {
                rate_hz: Some(1.0),
                ..options.clone()
            };
            (crate::folder::open(path, &options)?, false)
        }
        Err(error) => return Err(error),
    };
    let mut text = head(&source);
    text.push_str("# episodes = \"session_*/take_*\"\n\n");
    let first = source.episodes().first();
    match (options.rate_hz, has_rate) {
        (Some(rate_hz), _) => text.push_str(&format!("rate_hz = {rate_hz:?}\n")),
        (None, true) => text.push_str(&times(first)),
        (None, false) => text
            .push_str("# FILL IN: the source does not specify a frame rate.\n# rate_hz = 20.0\n"),
    }
    text.push_str("\n# task = \"open the drawer\"\n# licence = \"CC-BY-4.0\"\n");
    for stream in first.map_or(&[][..], |first| &first.streams) {
        text.push_str(&format!(
            "\n[[stream]]\nname = {name}\nfrom = {name}  # {}\nkind = {}\n",
            comment(&stream.frame.to_string()),
            quoted(stream.kind.name()),
            name = quoted(&stream.name),
        ));
    }
    Ok(text)
}

/// The field that timestamps were found in.
fn times(episode: Option<&EpisodeSpec>) -> String {
    let streams = episode.map_or(&[][..], |episode| &episode.streams);
    let is_explicit = |clock: &ClockSpec| matches!(clock, ClockSpec::Explicit(_));
    let found = streams.iter().find_map(|stream| {
        let (_, unit) = stream.name.rsplit_once('_')?;
        unit_ns(unit)?;
        (is_explicit(&stream.clock) && stream.name.contains("time")).then_some((stream, unit))
    });
    match found {
        Some((stream, unit)) => format!(
            "timestamps = {}\ntimestamps_unit = {}\n",
            quoted(&stream.name),
            quoted(unit)
        ),
        None => String::new(),
    }
}
