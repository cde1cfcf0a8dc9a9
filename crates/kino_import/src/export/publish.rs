//! Publishing an export: written in a private folder beside its target, synced, and renamed in one step.
//!
//! ```text
//! .kinograph-export-k3Jx92LmQa7c/     only one export writes here
//!   lock                              locked while that export runs; the system unlocks it when the process ends
//!   data                              the file or folder that becomes the target
//! ```
//!
//! 1. The name is random, so two exports never share it. A folder whose lock is free was left by a killed export; the
//!    next export to the same parent folder removes it, and never one whose lock is held.
//! 2. When everything is written, each file and folder is synced, so that a target that exists after a power loss is
//!    complete.
//! 3. `data` is renamed to the target by a call that fails if the name is taken (`RENAME_NOREPLACE`): of two exports to
//!    one target exactly one wins, and nothing is ever replaced, not even an empty folder.
//! 4. The parent folder is synced.
//!
//! Where the file system has no such rename (NFS, some of FUSE), see [`rename_over_claim`].

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use kino_dataset::create_folder;
use tempfile::TempDir;

use crate::error::{ImportError, Result, invalid};
use crate::export::{WritingPath, unwritable};
use crate::files;

/// How the name of a private folder begins. It is short and does not contain the target's name, which may be as long as
/// the file system allows.
const PREFIX: &str = ".kinograph-export-";
/// How many random letters and digits follow.
const RANDOM: usize = 12;
const LOCK: &str = "lock";
const DATA: &str = "data";
/// How often creating a private folder is retried: another export can mistake one for abandoned before it is locked.
const ATTEMPTS: usize = 16;

/// An export that is not visible yet; dropping it removes what was written.
#[derive(Debug)]
pub(super) struct Unpublished {
    // Dropped first, while the lock is still held.
    folder: TempDir,
    _lock: File,
    target: PathBuf,
}

impl Unpublished {
    /// Creates a private folder beside `target`, and missing parent folders. `dataset` is the exported dataset.
    pub(super) fn beside(target: &Path, dataset: &Path) -> Result<Self> {
        let Some(name) = target.file_name() else {
            let target = target.display();
            return Err(invalid(format!(
                "{target} has no file name; name a file or folder"
            )));
        };
        let parent = files::parent(target);
        if let Some(there) = parent.ancestors().find(|folder| folder.exists()) {
            refuse_inside(dataset, target, there)?;
        }
        create_folder(parent).writing(parent)?;
        // The real path: a symlink on the way may be changed while the export runs.
        let parent = refuse_inside(dataset, target, parent)?;
        sweep(&parent);
        let (folder, lock) = private_folder(&parent, target)?;
        Ok(Self {
            folder,
            _lock: lock,
            target: parent.join(name),
        })
    }

    /// Where to write the file or folder.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join(DATA)
    }

    /// Makes the export durable and gives it its name, unless the name was taken in the meantime.
    pub(super) fn publish(self) -> Result<()> {
        let data = self.data();
        each_bottom_up(&data, &mut |path| sync(path)).map_err(|(path, e)| unwritable(&path, e))?;
        rename_new(&data, &self.target).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => ImportError::Exists {
                what: format!(
                    "{} was created by another program while this export ran; it is not overwritten, and what this \
                     export wrote is removed: choose another target, or remove that one and export again",
                    self.target.display()
                ),
            },
            _ => unwritable(&self.target, error),
        })?;
        let parent = self.target.parent().unwrap_or(&self.target);
        sync(parent).writing(parent)
    }
}

/// The real path of `folder`, unless it is inside the dataset, where an export would be mistaken for part of it.
fn refuse_inside(dataset: &Path, target: &Path, folder: &Path) -> Result<PathBuf> {
    let real = folder.canonicalize().writing(folder)?;
    if real.starts_with(dataset) {
        Err(invalid(format!(
            "{} is inside the dataset {}; choose a target outside of it",
            target.display(),
            dataset.display()
        )))
    } else {
        Ok(real)
    }
}

/// A new private folder in `parent`, and its lock, which is held.
fn private_folder(parent: &Path, target: &Path) -> Result<(TempDir, File)> {
    let fail = |error| unwritable(parent, error);
    for _ in 0..ATTEMPTS {
        let made = tempfile::Builder::new()
            .prefix(PREFIX)
            .rand_bytes(RANDOM)
            .tempdir_in(parent);
        let folder = made.map_err(fail)?;
        if let Some(mut lock) = lock_new(folder.path()).map_err(fail)? {
            // For anyone who finds the folder.
            let about = format!(
                "an export to {}, process {}\n",
                target.display(),
                std::process::id()
            );
            lock.write_all(about.as_bytes()).map_err(fail)?;
            return Ok((folder, lock));
        }
    }
    Err(fail(io::Error::other(
        "temporary folders here disappear as soon as they are created",
    )))
}

/// Creates and takes the lock of a new private folder; `None` if a rival's [`sweep`] has already removed the folder.
fn lock_new(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join(LOCK);
    let lock = match File::create_new(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        made => made?,
    };
    match lock.try_lock() {
        Ok(()) => Ok(path.exists().then_some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        // A file system without locks: no sweep can lock it either, so the folder stays.
        Err(TryLockError::Error(_)) => Ok(Some(lock)),
    }
}

/// Removes what killed exports left in a folder. What cannot be removed, for example another user's, only takes space.
fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(is_private) {
        let path = entry.path();
        let lock = path.join(LOCK);
        if lock.symlink_metadata().is_err() {
            // Killed, or not locked yet: an empty folder can be removed in both cases, and the export creates another.
            let _ = fs::remove_dir(&path);
            continue;
        }
        let is_file = lock.symlink_metadata().is_ok_and(|meta| meta.is_file());
        let Some(lock) = is_file
            .then(|| OpenOptions::new().read(true).write(true).open(&lock).ok())
            .flatten()
        else {
            continue;
        };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether it is a folder with a name as [`private_folder`] makes them.
fn is_private(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let random = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    let has_name = random.is_some_and(|random| {
        random.len() == RANDOM && random.chars().all(|c| c.is_ascii_alphanumeric())
    });
    has_name && entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// Calls `visit` for every file and folder of a tree, children first; an error comes with its path.
fn each_bottom_up(
    path: &Path,
    visit: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> Result<(), (PathBuf, io::Error)> {
    let at = |error| (path.to_owned(), error);
    if path.symlink_metadata().map_err(at)?.is_dir() {
        for entry in fs::read_dir(path).map_err(at)? {
            each_bottom_up(&entry.map_err(at)?.path(), visit)?;
        }
    }
    visit(path).map_err(at)
}

/// Makes the bytes of a file, or the names in a folder, durable, regardless of who wrote them.
fn sync(path: &Path) -> io::Result<()> {
    if cfg!(not(unix)) && path.is_dir() {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    options.read(true).write(cfg!(not(unix)));
    options.open(path)?.sync_all()
}

/// Renames a file or folder to a free name; an `AlreadyExists` error if it is taken.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            Err(error) if ![Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP].contains(&error) => {
                return Err(error.into());
            }
            Err(_) => {}
        }
    }
    rename_over_claim(from, to)
}

/// The same in two steps, for file systems without `RENAME_NOREPLACE`: the name is claimed by a call that fails if it
/// is
/// taken (`link` for a file, which is all; else `mkdir`, or `open` with `O_EXCL`), then the empty claim is replaced.
/// A process that is killed between the two leaves the empty claim.
#[expect(
    clippy::disallowed_methods,
    reason = "it replaces nothing but the claim"
)]
fn rename_over_claim(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir(to)?;
        // A rename never replaces a folder that has something in it.
        return fs::rename(from, to).inspect_err(|_| drop(fs::remove_dir(to)));
    }
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {}
        linked => return linked,
    }
    drop(File::create_new(to)?);
    fs::rename(from, to).inspect_err(|_| drop(fs::remove_file(to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpublished(target: &Path) -> Unpublished {
        Unpublished::beside(target, Path::new("/no/dataset")).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_or_file_appears_with_what_is_in_it_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let one = unpublished(&folder.path().join("new/sub/one"));
        fs::create_dir(one.data()).unwrap();
        fs::write(one.data().join("a"), b"1").unwrap();
        one.publish().unwrap();
        let two = unpublished(&folder.path().join("new/sub/two"));
        fs::write(two.data(), b"2").unwrap();
        two.publish().unwrap();
        let parent = folder.path().join("new/sub");
        assert_eq!(names(&parent), ["one", "two"]);
        assert_eq!(fs::read(parent.join("one/a")).unwrap(), b"1");
        assert_eq!(fs::read(parent.join("two")).unwrap(), b"2");
    }

    #[test]
    fn a_target_that_appears_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        let write_folder = |one: &Unpublished| {
            fs::create_dir(one.data()).unwrap();
            fs::write(one.data().join("a"), b"mine").unwrap();
        };
        let write_file = |one: &Unpublished| fs::write(one.data(), b"mine").unwrap();
        let writes: [&dyn Fn(&Unpublished); 2] = [&write_folder, &write_file];
        let empty_folder = || fs::create_dir(&target).unwrap();
        let empty_file = || drop(File::create_new(&target).unwrap());
        let dangling = || std::os::unix::fs::symlink("/no/such/file", &target).unwrap();
        let rivals: [&dyn Fn(); 3] = [&empty_folder, &empty_file, &dangling];
        for write in writes {
            for rival in rivals {
                let one = unpublished(&target);
                write(&one);
                rival();
                let before = target.symlink_metadata().unwrap();
                let error = one.publish().unwrap_err();
                assert!(matches!(error, ImportError::Exists { .. }), "{error}");
                let after = target.symlink_metadata().unwrap();
                let inode = |meta: fs::Metadata| std::os::unix::fs::MetadataExt::ino(&meta);
                assert_eq!(inode(before), inode(after));
                assert_eq!(names(folder.path()), ["target"]);
                let _ = fs::remove_dir(&target).or_else(|_| fs::remove_file(&target));
            }
        }
    }

    #[test]
    fn a_claim_lets_one_of_many_through_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for (round, is_folder) in (0..20).map(|round| (round, round % 2 == 0)) {
            let target = folder.path().join(format!("target{round}"));
            let rivals: Vec<_> = (0..8)
                .map(|rival| {
                    let from = folder.path().join(format!("from{round}-{rival}"));
                    if is_folder {
                        fs::create_dir(&from).unwrap()
                    } else {
                        fs::write(&from, [rival]).unwrap()
                    }
                    if is_folder {
                        fs::write(from.join("a"), [rival]).unwrap();
                    }
                    from
                })
                .collect();
            let wins: Vec<usize> = std::thread::scope(|scope| {
                let threads: Vec<_> = rivals
                    .iter()
                    .map(|from| scope.spawn(|| rename_over_claim(from, &target).is_ok()))
                    .collect();
                let won = threads.into_iter().map(|thread| thread.join().unwrap());
                won.enumerate()
                    .filter_map(|(at, won)| won.then_some(at))
                    .collect()
            });
            assert_eq!(wins.len(), 1, "round {round}");
            let found = fs::read(if is_folder { target.join("a") } else { target }).unwrap();
            assert_eq!(usize::from(found[0]), wins[0]);
        }
        let full = folder.path().join("full");
        fs::create_dir(&full).unwrap();
        let from = folder.path().join("from");
        fs::create_dir(&from).unwrap();
        let error = rename_over_claim(&from, &full).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(from.is_dir() && full.is_dir());
    }

    #[test]
    fn leftovers_of_a_killed_export_are_removed_and_a_running_one_is_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        let living = unpublished(&target);
        fs::write(living.data(), b"living").unwrap();
        let dead = unpublished(&target);
        fs::write(dead.data(), b"dead").unwrap();
        // A kill: the system closes the file, and nothing is removed.
        let Unpublished {
            folder: left,
            _lock: lock,
            ..
        } = dead;
        drop(lock);
        let left = left.keep();
        let bare = folder.path().join(".kinograph-export-aaaaaaaaaaaa");
        fs::create_dir(&bare).unwrap();
        let others = [
            ".kinograph-export-notes",
            ".kinograph-export-aaaaaaaaaaa-",
            ".target.exporting",
        ];
        for name in others {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let next = unpublished(&folder.path().join("other"));
        assert!(!left.exists() && !bare.exists());
        assert_eq!(fs::read(living.data()).unwrap(), b"living");
        fs::write(next.data(), b"next").unwrap();
        next.publish().unwrap();
        living.publish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"living");
        let mut expected = others.to_vec();
        expected.extend(["other", "target"]);
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected);
    }

    #[test]
    fn exports_that_start_together_never_mistake_each_other_for_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let start = |name: String| {
            for round in 0..40 {
                let one = unpublished(&folder.path().join(&name));
                fs::write(one.data(), [round]).unwrap();
                assert_eq!(fs::read(one.data()).unwrap(), [round]);
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || start(format!("target{thread}")));
            }
        });
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn every_file_and_folder_is_visited_after_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("data");
        fs::create_dir_all(root.join("meta/deep")).unwrap();
        for name in ["a", "meta/b", "meta/deep/c"] {
            fs::write(root.join(name), b"x").unwrap();
        }
        let mut seen = Vec::new();
        each_bottom_up(&root, &mut |path| {
            seen.push(path.to_owned());
            sync(path)
        })
        .unwrap();
        assert_eq!(seen.len(), 6);
        let place = |name: &str| {
            let path = root.join(name);
            seen.iter()
                .position(|one| one.components().eq(path.components()))
                .unwrap()
        };
        for (inner, outer) in [
            ("a", ""),
            ("meta", ""),
            ("meta/b", "meta"),
            ("meta/deep", "meta"),
            ("meta/deep/c", "meta/deep"),
        ] {
            assert!(place(inner) < place(outer), "{inner} before {outer}");
        }
    }

    #[test]
    fn a_target_in_the_dataset_is_refused_also_through_a_symlink() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let dataset = root.join("a.kino");
        fs::create_dir(&dataset).unwrap();
        std::os::unix::fs::symlink(&dataset, root.join("link")).unwrap();
        for target in ["a.kino/x", "a.kino/new/x", "link/x", "other/../a.kino/x"] {
            let error = Unpublished::beside(&root.join(target), &dataset).unwrap_err();
            assert!(
                error.to_string().contains("is inside the dataset"),
                "{error}"
            );
        }
        assert_eq!(names(&dataset), Vec::<String>::new());
        // A name that begins with the dataset's is not inside it.
        Unpublished::beside(&root.join("a.kino2/x"), &dataset).unwrap();
    }

    #[test]
    fn names_as_long_as_the_file_system_allows_and_not_utf_8_can_be_written() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let odd = std::ffi::OsStr::from_bytes(b"odd\xff\xfe");
        for name in [Path::new(&"n".repeat(255)), Path::new(odd)] {
            let target = folder.path().join(name);
            let one = unpublished(&target);
            fs::write(one.data(), b"x").unwrap();
            one.publish().unwrap();
            assert_eq!(fs::read(target).unwrap(), b"x");
        }
    }
}
