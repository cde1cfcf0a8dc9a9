//! Finding libavcodec and opening it, once per process.
//!
//! ```text
//! KINOGRAPH_FFMPEG  →  folders that were added (PyAV's)  →  the system's libavcodec.so.62 … .58
//! ```
//!
//! A library that was found stays loaded: decoders and images refer to it. A search that failed is repeated when a folder
//! is added.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use kino_sync::Mutex;

use crate::error::{FfmpegError, Result};
use crate::ffi::{Functions, preload};

/// The variable that names a folder with libavcodec.
const VARIABLE: &str = "KINOGRAPH_FFMPEG";

/// What to do if the folder that the variable names does not help: PyAV alone would not be looked at.
const IF_NAMED: &str = "set it to a folder with libavcodec, or unset it and run `pip install av`";

/// What to do if nothing was found.
const IF_SEARCHED: &str =
    "run `pip install av`, or set KINOGRAPH_FFMPEG to a folder with libavcodec";

/// Major versions of libavcodec whose structs have the fields where `ffi.rs` reads them: FFmpeg 4 to 8.
const MAJORS: [u32; 5] = [62, 61, 60, 59, 58];

/// What is known about the library in this process.
#[derive(Default)]
struct Known {
    folders: Vec<PathBuf>,
    found: Option<Result<&'static Functions>>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known {
    folders: Vec::new(),
    found: None,
});

/// Adds a folder in which libavcodec may be, such as the one of PyAV's wheel.
pub fn add_folder(folder: impl Into<PathBuf>) {
    let folder = folder.into();
    let mut known = KNOWN.lock();
    if !known.folders.contains(&folder) {
        known.folders.push(folder);
        known.found = known.found.take().filter(Result::is_ok);
    }
}

/// The version of libavcodec, such as `62.28.102`; an error if there is none.
pub fn version() -> Result<String> {
    Ok(functions()?.version())
}

/// Whether FFmpeg is there and can decode `codec` (`h264`, `hevc`, `mpeg4`).
pub fn has_decoder(codec: &str) -> bool {
    functions().is_ok_and(|ffmpeg| ffmpeg.find_decoder(codec).is_some())
}

/// Whether FFmpeg is there and has the encoder `name` (`libsvtav1`).
pub fn has_encoder(name: &str) -> bool {
    functions().is_ok_and(|ffmpeg| ffmpeg.find_encoder(name).is_some())
}

/// The functions of the library, which is opened on the first call.
pub(crate) fn functions() -> Result<&'static Functions> {
    let mut known = KNOWN.lock();
    match &known.found {
        Some(found) => found.clone(),
        None => {
            let found = open(&known.folders);
            known.found = Some(found.clone());
            found
        }
    }
}

fn open(folders: &[PathBuf]) -> Result<&'static Functions> {
    // A folder that the user names is the only one: another library would be a surprise.
    if let Some(folder) = env::var_os(VARIABLE).map(PathBuf::from) {
        let files = in_folder(&folder);
        if files.is_empty() {
            let what = format!("{VARIABLE}={} has no libavcodec", folder.display());
            return Err(unavailable(what, IF_NAMED));
        }
        return open_first(&files, IF_NAMED);
    }
    let system = MAJORS.map(|major| PathBuf::from(format!("libavcodec.so.{major}")));
    let files: Vec<_> = folders
        .iter()
        .flat_map(|folder| in_folder(folder))
        .collect();
    open_first(&files, IF_SEARCHED).or_else(|error| match open_first(&system, IF_SEARCHED) {
        // That the system has none says nothing; that PyAV's cannot be used does.
        Err(_) if !files.is_empty() => Err(error),
        found => found,
    })
}

/// Opens the first of these files that can be used.
fn open_first(files: &[PathBuf], advice: &'static str) -> Result<&'static Functions> {
    let mut tried = Vec::new();
    for file in files {
        let opened = Functions::open(file).or_else(|_| {
            preload(needed(file));
            Functions::open(file)
        });
        match opened {
            Ok(functions) if MAJORS.contains(&functions.major()) => {
                return Ok(Box::leak(Box::new(functions)));
            }
            Ok(other) => tried.push(format!(
                "{} has version {}",
                file.display(),
                other.version()
            )),
            Err(_) if !file.is_absolute() && !file.exists() => {}
            Err(what) => tried.push(what),
        }
    }
    if tried.is_empty() {
        tried.push("libavcodec was not found".to_owned());
    }
    Err(unavailable(tried.join("; "), advice))
}

fn unavailable(what: String, advice: &'static str) -> FfmpegError {
    FfmpegError::Unavailable { what, advice }
}

/// The libraries beside libavcodec that it may need. Those of a wheel have names that only their folder knows, and most
/// versions of PyAV's do not say in which folder that is; once they are loaded, they are found.
fn needed(file: &Path) -> Vec<PathBuf> {
    // These need libavcodec themselves.
    let above = ["libavcodec", "libavdevice", "libavfilter", "libavformat"];
    let is_needed =
        |name: &str| name.contains(".so") && !above.iter().any(|start| name.starts_with(start));
    match file.parent() {
        Some(folder) if file.is_absolute() => list(folder, is_needed),
        _ => Vec::new(),
    }
}

/// The files of libavcodec in a folder, the shortest name first: `libavcodec.so.62`, `libavcodec-5e6b81c2.so.62.28.102`.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    list(folder, |name| {
        name.starts_with("libavcodec") && (name.contains(".so") || name.ends_with(".dylib"))
    })
}

/// The files of a folder whose names pass, the shortest first.
fn list(folder: &Path, passes: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    // dlopen takes a name without a folder as one of the system's.
    let Ok(entries) = folder.canonicalize().and_then(fs::read_dir) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(&passes))
        .map(|entry| entry.path())
        .collect();
    files.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_libavcodec_are_candidates() {
        let folder = env::temp_dir().join(format!("kino-ffmpeg-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in [
            "libavcodec-1a.so.62.1",
            "libavcodec.so.62",
            "libavutil.so.60",
            "libavcodec.txt",
        ] {
            fs::write(folder.join(name), "").unwrap();
        }
        let names: Vec<_> = in_folder(&folder)
            .iter()
            .map(|file| file.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["libavcodec.so.62", "libavcodec-1a.so.62.1"]);
        // Files that are not libraries are reported, not loaded.
        let error = open_first(&in_folder(&folder), IF_SEARCHED).unwrap_err();
        for part in [
            "libavcodec.so.62",
            "libavcodec-1a.so.62.1",
            "pip install av",
        ] {
            assert!(error.to_string().contains(part), "{error}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
