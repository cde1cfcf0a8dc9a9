//! The files of a source: opened, listed and read only here in this crate.
//!
//! A source may come from someone else (git, a tar, a download), so files are not trusted to be what they seem:
//!
//! | what is there | what happens |
//! |---|---|
//! | a named pipe, a socket, a device | refused: reading it would block, or never end |
//! | a link that leads out of the folder | refused before anything is read, unless [`ImportOptions::follow_links`] |
//! | a file that is longer than its limit | refused at the limit, whatever length the system reports |
//! | a hole of terabytes with a few bytes around it | refused: reading it costs as much as real data |
//! | a Git LFS pointer, a few lines of text in place of the data | refused, with the command that fetches the data |

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::{ImportError, Result};
use crate::open::ImportOptions;

/// Shorter files may be sparse.
const SPARSE_BYTES: u64 = 1 << 30;

/// How many bytes a longer file may have per byte on disk: more than compressing file systems reach.
const SPARSE_RATIO: u64 = 1000;

/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// How a Git LFS pointer begins.
const LFS_START: &[u8] = b"version https://git-lfs.github.com/spec/v1";

/// A Git LFS pointer is shorter than this.
const LFS_BYTES: u64 = 1024;

/// The file is a Git LFS pointer: the data was never downloaded.
#[derive(Debug, thiserror::Error)]
#[error("is a Git LFS pointer, not the data; run `git lfs pull` in {folder}")]
struct LfsPointer {
    folder: String,
}

/// Opens a regular file for reading.
///
/// Everything else is refused without blocking, and so is a Git LFS pointer.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Opening a device may have side effects, so the path is checked first. A pipe that replaces it in between is
    // opened without waiting for a writer, and detected afterwards.
    check(&fs::metadata(path)?)?;
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)?;
    let found = file.metadata()?;
    check(&found)?;
    check_pointer(path, &file, found.len())?;
    Ok(file)
}

/// Refuses a Git LFS pointer: the most common broken download of a dataset.
fn check_pointer(path: &Path, file: &File, len: u64) -> io::Result<()> {
    if !(LFS_START.len() as u64..LFS_BYTES).contains(&len) {
        return Ok(());
    }
    let mut start = [0; LFS_START.len()];
    // A file that cannot be read here is reported by its importer.
    if file.read_exact_at(&mut start, 0).is_err() || start != LFS_START {
        return Ok(());
    }
    let pointer = LfsPointer {
        folder: parent(path).display().to_string(),
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, pointer))
}

/// The error's text if the file is a Git LFS pointer.
fn pointer_of(error: &io::Error) -> Option<&LfsPointer> {
    error.get_ref()?.downcast_ref()
}

/// Why a video file cannot be opened, as text: the decoder opens it, not this crate.
pub(crate) fn refuse_video(path: &Path) -> Option<String> {
    let error = open(path).err()?;
    Some(match pointer_of(&error) {
        Some(pointer) => pointer.to_string(),
        None => format!("cannot be read: {error}"),
    })
}

/// Opens a regular file and returns its length.
pub(crate) fn open_with_len(path: &Path) -> io::Result<(File, u64)> {
    let file = open(path)?;
    let len = file.metadata()?.len();
    Ok((file, len))
}

fn check(found: &Metadata) -> io::Result<()> {
    if !found.is_file() {
        let what = format!("is {}, not a regular file", name(found.file_type()));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    // Some network file systems report no blocks at all.
    let (len, stored) = (found.len(), found.blocks().saturating_mul(BLOCK_BYTES));
    if len > SPARSE_BYTES && stored > 0 && stored < len / SPARSE_RATIO {
        let what = format!(
            "is sparse: {len} bytes, of which {stored} are on disk; rewrite it without holes"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}

fn name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "something else",
    }
}

/// The last part of a path, for messages.
pub(crate) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The folder of a file, which may be the working directory.
pub(crate) fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    parent.unwrap_or(Path::new("."))
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The length reported by the system is not trusted: the file may grow while it is read.
    let read = open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    read.reading(path)?;
    if bytes.len() as u64 > limit {
        let what = format!("is longer than {limit} bytes, the limit for this file");
        return Err(ImportError::corrupt(path, "/", what));
    }
    Ok(bytes)
}

/// Reads a range of a file, or as much of it as there is.
pub(crate) fn read_range(path: &Path, start: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of at most `limit` bytes; `None` if it does not exist. A dangling link is an error.
pub(crate) fn read_limited_if_there(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    match fs::symlink_metadata(path) {
        Err(error) if is_missing(&error) => Ok(None),
        _ => read_limited(path, limit).map(Some),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The error for an unreadable file. A Git LFS pointer counts as a damaged file, so that the other episodes can be
/// imported.
pub(crate) fn cannot_read(path: &Path, source: io::Error) -> ImportError {
    match pointer_of(&source) {
        Some(pointer) => {
            ImportError::corrupt_with(path, "/", pointer.to_string(), "then pack again")
        }
        None => ImportError::Io {
            path: path.to_owned(),
            source,
        },
    }
}

/// Names the file of a failed read.
pub(crate) trait ReadingPath<T> {
    fn reading(self, path: &Path) -> Result<T>;
}

impl<T> ReadingPath<T> for io::Result<T> {
    fn reading(self, path: &Path) -> Result<T> {
        self.map_err(|source| cannot_read(path, source))
    }
}

/// Refuses a folder that contains a link out of it, unless the user follows links.
///
/// The whole folder is listed up front, so that importers need not check each file.
pub(crate) fn check_links(folder: &Path, options: &ImportOptions) -> Result<()> {
    if options.follow_links {
        return Ok(());
    }
    let root = folder.canonicalize().reading(folder)?;
    let mut waiting = vec![folder.to_owned()];
    while let Some(inner) = waiting.pop() {
        // A folder that cannot be listed is reported by the importer, if it needs it.
        for entry in fs::read_dir(&inner).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_symlink() => check_link(&root, &entry.path())?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Refuses a file that is a link out of its folder, unless the user follows links.
pub(crate) fn check_file(folder: &Path, name: &str, options: &ImportOptions) -> Result<()> {
    match folder.canonicalize() {
        Ok(root) if !options.follow_links => check_link(&root, &folder.join(name)),
        _ => Ok(()),
    }
}

fn check_link(root: &Path, link: &Path) -> Result<()> {
    match link.canonicalize() {
        Ok(target) if !target.starts_with(root) => Err(ImportError::unsupported(
            link,
            "link",
            &format!(
                "is a link out of the source, to {}; nothing was read",
                target.display()
            ),
            "put the file itself there, or follow links if you trust the source: `--follow-links` \
             (in Python follow_links=True)",
        )),
        // A dangling link cannot be read.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn error_of<T>(result: io::Result<T>) -> String {
        result.err().map(|error| error.to_string()).unwrap()
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("link");
        symlink("/dev/zero", &link).unwrap();
        for (path, what) in [
            (pipe.as_path(), "a named pipe"),
            (&socket, "a socket"),
            (Path::new("/dev/zero"), "a device"),
            (&link, "a device"),
            (folder.path(), "a folder"),
        ] {
            let expected = format!("is {what}, not a regular file");
            assert_eq!(error_of(open(path)), expected, "{}", path.display());
            assert!(read_limited(path, 10).is_err());
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_whatever_length_the_system_reports() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"1234").unwrap();
        assert_eq!(read_limited(&path, 4).unwrap(), b"1234");
        assert!(read_limited(&path, 3).is_err());
        // The system reports length 0 for this one.
        let endless = Path::new("/proc/self/mountinfo");
        assert_eq!(endless.metadata().unwrap().len(), 0);
        assert!(read_limited(endless, 3).is_err());
        assert!(read_limited_if_there(&path, 4).unwrap().is_some());
        assert!(
            read_limited_if_there(&folder.path().join("no"), 4)
                .unwrap()
                .is_none()
        );
        symlink("nowhere", folder.path().join("link")).unwrap();
        assert!(read_limited_if_there(&folder.path().join("link"), 4).is_err());
    }

    #[test]
    fn a_git_lfs_pointer_is_refused_with_the_command_that_fetches_the_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("demos.hdf5");
        let hash = "0".repeat(64);
        let pointer =
            format!("version https://git-lfs.github.com/spec/v1\noid sha256:{hash}\nsize 12345\n");
        fs::write(&path, &pointer).unwrap();
        let error = cannot_read(&path, open(&path).unwrap_err());
        assert_eq!(
            error.to_string(),
            format!(
                "{}: is a Git LFS pointer, not the data; run `git lfs pull` in {}; then pack again",
                path.display(),
                folder.path().display()
            )
        );
        assert!(refuse_video(&path).unwrap().contains("git lfs pull"));
        // A text that only mentions it, or a long file that begins like one, is data.
        fs::write(&path, format!(" {pointer}")).unwrap();
        assert!(refuse_video(&path).is_none());
        fs::write(&path, pointer + &"x".repeat(1024)).unwrap();
        open(&path).unwrap();
    }

    #[test]
    fn a_hole_of_a_terabyte_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [1; 8192]).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(error_of(open(&path)).starts_with("is sparse: 1099511627776 bytes"));
    }

    #[test]
    fn links_may_stay_inside_a_folder_but_not_lead_out_of_it() {
        let outer = tempfile::tempdir().unwrap();
        fs::write(outer.path().join("secret"), b"1").unwrap();
        let folder = outer.path().join("source");
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("file"), b"2").unwrap();
        symlink("../file", folder.join("a/inside")).unwrap();
        symlink("..", folder.join("a/b/circle")).unwrap();
        symlink("nowhere", folder.join("a/dangling")).unwrap();
        let options = ImportOptions::default();
        check_links(&folder, &options).unwrap();
        // The folder itself may be a link: the user named it.
        let named = outer.path().join("named");
        symlink("source", &named).unwrap();
        check_links(&named, &options).unwrap();
        for target in ["../../../secret", "/", "../../../source/../secret"] {
            let link = folder.join("a/b/out");
            symlink(target, &link).unwrap();
            for root in [&folder, &named] {
                let error = check_links(root, &options).unwrap_err().to_string();
                assert!(error.contains("a/b/out"), "{error}");
                assert!(error.contains("--follow-links"), "{error}");
            }
            let options = ImportOptions {
                follow_links: true,
                ..ImportOptions::default()
            };
            check_links(&folder, &options).unwrap();
            fs::remove_file(&link).unwrap();
        }
    }

    #[test]
    fn nothing_else_here_opens_files() {
        let mut waiting = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut seen = 0;
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                waiting.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
                continue;
            }
            // A mapping is a file that the user names, and may well be a pipe.
            let may_open = ["files.rs", "mapping.rs", "tests.rs"];
            if may_open.iter().any(|name| path.ends_with(name)) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for call in [
                "fs::read(",
                "fs::read_to_string(",
                " File::open(",
                "fs::File::open(",
            ] {
                assert!(!code.contains(call), "{}: {call}", path.display());
            }
            seen += 1;
        }
        assert!(seen > 100);
    }
}
