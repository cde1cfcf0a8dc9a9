//! The `kinograph` command: one file per verb.
