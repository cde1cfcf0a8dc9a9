//! How much memory and which shuffle groups may be recommended, by the doctor and by the planner.

/// Memory for decoded frames is recommended up to one over this of the machine's.
pub(crate) const MEMORY_SHARE: u64 = 2;

/// Shuffle groups of fewer episodes mix too little to be recommended.
pub(crate) const LEAST_GROUP: u64 = 8;

/// A size as an option of a loader that needs it: `289MB`, rounded up.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{}MB", bytes.div_ceil(1_000_000).max(1))
}

/// A size as an option of a loader that has no more: `31MB`, `2608kB`, rounded down.
pub(crate) fn at_most(bytes: u64) -> String {
    match bytes {
        10_000_000.. => format!("{}MB", bytes / 1_000_000),
        _ => format!("{}kB", (bytes / 1000).max(1)),
    }
}
