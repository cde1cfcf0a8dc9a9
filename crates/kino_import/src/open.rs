//! Opening a source, and the options of an import.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_dataset::{Part, check_local};

use crate::error::{ImportError, Result, invalid};
use crate::files::{self, ReadingPath};
use crate::formats::{self, Format};
use crate::part;
use crate::source::Source;
use crate::specs::is_rate;
use crate::video::Videos;

/// Longer mappings are refused.
const MAX_MAPPING_BYTES: u64 = 16 << 20;

/// The options of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The name of one of [`FORMATS`](crate::FORMATS); default: detected.
    pub format: Option<String>,
    /// Frames per second; default: the rate stored in the source.
    pub rate_hz: Option<f64>,
    /// A TOML file that says which object of the source becomes which stream, for formats that do not define it.
    pub mapping: Option<PathBuf>,
    /// Memory limit for reading; default: 512 MB.
    pub memory_bytes: Option<u64>,
    /// Decoder for video files; without one, a source with videos is refused.
    pub videos: Option<Arc<dyn Videos>>,
    /// Whether to follow links that lead out of the source's folder. In a source from someone else such a link could
    /// point at any of the user's files. Links that stay inside are always followed.
    pub follow_links: bool,
    /// Which streams and episodes are imported.
    pub part: Part,
    /// Whether float images that hold only whole numbers from 0 to 255 are imported as they are, not as uint8 images.
    pub keep_dtype: bool,
}

impl ImportOptions {
    /// The options that decide what is imported, by name; an interrupted pack is only resumed with the same ones.
    pub fn settings(&self) -> Result<BTreeMap<String, String>> {
        let mut settings = BTreeMap::new();
        if let Some(rate_hz) = self.rate_hz {
            settings.insert("rate_hz".to_owned(), rate_hz.to_string());
        }
        if let Some(mapping) = &self.mapping {
            let text = files::read_limited(mapping, MAX_MAPPING_BYTES)?;
            let hash = blake3::hash(&text).to_hex();
            let name = format!("{} {}", mapping.display(), &hash[..16]);
            settings.insert("mapping".to_owned(), name);
        }
        if self.keep_dtype {
            settings.insert("keep_dtype".to_owned(), "true".to_owned());
        }
        let part = &self.part;
        for (name, list) in [
            ("streams", &part.streams),
            ("exclude", &part.exclude),
            ("episodes", &part.episodes),
        ] {
            if !list.is_empty() {
                settings.insert(name.to_owned(), list.join(" "));
            }
        }
        Ok(settings)
    }
}

/// Opens a file, or a folder of files, in any known format.
///
/// Reads metadata only. Defects of the source are in its [`describe`](Source::describe); [`pack`](crate::pack())
/// decides what to do about them.
pub fn open(path: &Path, options: &ImportOptions) -> Result<Source> {
    let mut source = check(path, options)?.open(path, options)?;
    source.is_part = !options.part.is_all();
    source.keep_dtype = options.keep_dtype;
    if !options.part.is_all() {
        part::restrict(&mut source, &options.part)?;
    }
    Ok(source)
}

/// The format of a path, checked against these options.
pub(crate) fn check(path: &Path, options: &ImportOptions) -> Result<&'static Format> {
    if let Some(rate_hz) = options.rate_hz
        && !is_rate(&rate_hz)
    {
        return Err(invalid(format!(
            "rate {rate_hz} Hz is not a rate; pass a number above zero"
        )));
    }
    check_local(path)?;
    let found = fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => ImportError::NotFound {
            path: path.to_owned(),
            what: "no such file or folder".to_owned(),
            next: "check the path".to_owned(),
        },
        _ => files::cannot_read(path, source),
    })?;
    if found.is_dir() {
        files::check_links(path, options)?
    } else {
        drop(files::open(path).reading(path)?)
    }
    let format = formats::find(path, options.format.as_deref())?;
    if options.mapping.is_some() && !format.takes_mapping {
        let takers = formats::FORMATS
            .iter()
            .filter(|format| format.takes_mapping);
        let takers: Vec<_> = takers.map(|format| format.name).collect();
        return Err(invalid(format!(
            "{}: the format `{}` does not take a mapping; remove --mapping (in Python mapping=), which is for {}",
            path.display(),
            format.name,
            takers.join(", ")
        )));
    }
    Ok(format)
}
