//! The allowed dependencies between crates (the arrows), and what a crate must not pull in.
//!
//! ```text
//! kino_codec ← kino_format  ← kino_dataset ← kino_loader ← kino_advisor ← kino_cli ← kino_py
//!            ↖ kino_parquet ↙              ↖ kino_import ←──────────────↙
//! ```
//!
//! The arrows keep the lower crates usable alone: a program that reads one shard needs the codecs, not an
//! object store and a thread pool. A compiler cannot detect an unwanted dependency; this check can.

use std::path::Path;

use anyhow::Result;

use crate::Findings;
use crate::metadata::Graph;

/// Each crate, and the crates of this workspace that it may depend on, in any way. Those at the end of the line do
/// not see the bytes of a shard: the dataset provides what they need of it.
const ALLOWED: &[(&str, &[&str])] = &[
    ("kino_sync", &[]),
    ("kino_storage", &["kino_sync"]),
    ("kino_ffmpeg", &["kino_sync"]),
    ("kino_codec", &["kino_sync", "kino_ffmpeg"]),
    ("kino_format", &["kino_codec", "kino_sync"]),
    ("kino_parquet", &["kino_codec", "kino_sync"]),
    (
        "kino_dataset",
        &[
            "kino_sync",
            "kino_storage",
            "kino_codec",
            "kino_format",
            "kino_parquet",
        ],
    ),
    (
        "kino_loader",
        &[
            "kino_sync",
            "kino_storage",
            "kino_codec",
            "kino_format",
            "kino_dataset",
        ],
    ),
    ("kino_cuda", &["kino_sync"]),
    (
        "kino_import",
        &[
            "kino_sync",
            "kino_storage",
            "kino_codec",
            "kino_format",
            "kino_parquet",
            "kino_dataset",
        ],
    ),
    (
        "kino_advisor",
        &[
            "kino_sync",
            "kino_storage",
            "kino_codec",
            "kino_dataset",
            "kino_loader",
        ],
    ),
    (
        "kino_cli",
        &[
            "kino_sync",
            "kino_storage",
            "kino_codec",
            "kino_dataset",
            "kino_import",
            "kino_loader",
            "kino_advisor",
        ],
    ),
    (
        "kino_py",
        &[
            "kino_sync",
            "kino_storage",
            "kino_codec",
            "kino_dataset",
            "kino_import",
            "kino_loader",
            "kino_advisor",
            "kino_cli",
            "kino_cuda",
        ],
    ),
    ("xtask", &[]),
    (
        "kino_fuzz",
        &[
            "kino_storage",
            "kino_codec",
            "kino_format",
            "kino_dataset",
            "kino_import",
            "kino_loader",
            "kino_advisor",
        ],
    ),
];

/// Something that certain crates must not link, not even indirectly.
struct NotLinked {
    by: &'static [&'static str],
    dependencies: &'static [&'static str],
    because: &'static str,
}

const NOT_LINKED: &[NotLinked] = &[
    NotLinked {
        by: &["kino_codec"],
        dependencies: &["tokio", "parquet", "rayon", "crossbeam-channel", "memmap2"],
        because: "codecs are pure functions: no I/O, no threads",
    },
    NotLinked {
        by: &["kino_format"],
        dependencies: &["tokio", "parquet", "rayon", "memmap2", "tempfile"],
        because: "a shard is bytes: its reader requests ranges and never opens a file",
    },
    NotLinked {
        by: &[
            "kino_codec",
            "kino_format",
            "kino_parquet",
            "kino_dataset",
            "kino_loader",
            "kino_cuda",
            "kino_import",
            "kino_advisor",
            "kino_cli",
        ],
        dependencies: &["pyo3", "numpy"],
        because: "only kino_py may use Python",
    },
    NotLinked {
        by: &[
            "kino_codec",
            "kino_format",
            "kino_parquet",
            "kino_dataset",
            "kino_loader",
            "kino_import",
            "kino_advisor",
        ],
        dependencies: &["clap", "indicatif"],
        because: "only the command line talks to a terminal",
    },
];

/// Something that only certain crates may list in their `Cargo.toml`; others may link it indirectly.
const DECLARED_ONLY_BY: &[(&str, &[&str], &str)] = &[
    (
        "anyhow",
        &["kino_cli", "xtask"],
        "a library's errors must be an enum that a caller can match",
    ),
    (
        "parquet",
        &["kino_parquet"],
        "page headers are untrusted, and checked in one place",
    ),
    (
        "libloading",
        &["kino_ffmpeg", "kino_cuda"],
        "libraries are loaded in one place each, with the proofs that their functions are as declared",
    ),
];

/// Everything in the workspace that breaks a rule above.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    Ok(findings(&Graph::read(root)?))
}

fn findings(graph: &Graph) -> Findings {
    let mut findings = wrong_arrows(graph);
    findings.extend(wrongly_linked(graph));
    findings.extend(wrongly_declared(graph));
    findings
}

fn wrong_arrows(graph: &Graph) -> Findings {
    let members: Vec<&str> = graph
        .members()
        .map(|package| package.name.as_str())
        .collect();
    let mut findings = Findings::new();
    for package in graph.members() {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            findings.push(format!(
                "`{}` has no row in the table of arrows; add one in xtask/src/arrows.rs",
                package.name
            ));
            continue;
        };
        for dependency in &package.declared {
            if members.contains(&dependency.as_str()) && !allowed.contains(&dependency.as_str()) {
                findings.push(format!(
                    "`{}` must not depend on `{dependency}`: no arrow allows it",
                    package.name
                ));
            }
        }
    }
    findings
}

fn wrongly_linked(graph: &Graph) -> Findings {
    let mut findings = Findings::new();
    for rule in NOT_LINKED {
        for member in rule.by {
            for dependency in rule.dependencies {
                if let Some(path) = graph.path(member, dependency) {
                    findings.push(format!(
                        "`{member}` must not link `{dependency}` ({}): {}",
                        path.join(" → "),
                        rule.because
                    ));
                }
            }
        }
    }
    findings
}

fn wrongly_declared(graph: &Graph) -> Findings {
    let mut findings = Findings::new();
    for (dependency, allowed, because) in DECLARED_ONLY_BY {
        for package in graph.members() {
            let declares = package.declared.iter().any(|name| name == dependency);
            if declares && !allowed.contains(&package.name.as_str()) {
                findings.push(format!(
                    "`{}` must not depend on `{dependency}`: {because}",
                    package.name
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::graph;

    #[test]
    fn the_workspace_as_designed_passes() {
        let graph = graph(&[
            ("kino_codec", "MIT", &["pco"]),
            ("kino_format", "MIT", &["kino_codec"]),
            (
                "kino_dataset",
                "MIT",
                &["kino_codec", "kino_format", "rayon"],
            ),
            ("pco", "Apache-2.0", &[]),
            ("rayon", "MIT OR Apache-2.0", &[]),
        ]);
        assert_eq!(findings(&graph), Findings::new());
    }

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let graph = graph(&[
            ("kino_codec", "MIT", &["kino_format"]),
            ("kino_format", "MIT", &[]),
        ]);
        assert_eq!(
            findings(&graph),
            ["`kino_codec` must not depend on `kino_format`: no arrow allows it"]
        );
    }

    #[test]
    fn a_command_that_reads_shards_itself_is_found() {
        let graph = graph(&[
            ("kino_format", "MIT", &[]),
            ("kino_cli", "MIT", &["kino_format"]),
        ]);
        assert_eq!(findings(&graph).len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        let found = findings(&graph(&[("kino_attic", "MIT", &[])]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`kino_attic` has no row"), "{found:?}");
    }

    #[test]
    fn a_heavy_dependency_is_found_however_deep() {
        let graph = graph(&[
            ("kino_codec", "MIT", &["pco"]),
            ("pco", "MIT", &["threads"]),
            ("threads", "MIT", &["rayon"]),
            ("rayon", "MIT", &[]),
        ]);
        assert_eq!(
            findings(&graph),
            [
                "`kino_codec` must not link `rayon` (kino_codec → pco → threads → rayon): codecs are pure functions: no I/O, no threads"
            ]
        );
    }

    #[test]
    fn python_outside_kino_py_is_found() {
        let rows: &[(&str, &str, &[&str])] = &[
            ("kino_cli", "MIT", &["pyo3"]),
            ("kino_py", "MIT", &["pyo3"]),
            ("pyo3", "MIT", &[]),
        ];
        let found = findings(&graph(rows));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("`kino_cli` must not link `pyo3`"),
            "{found:?}"
        );
    }

    #[test]
    fn anyhow_in_a_library_is_found_but_may_be_linked_indirectly() {
        let rows: &[(&str, &str, &[&str])] = &[
            ("kino_dataset", "MIT", &["anyhow"]),
            ("kino_cli", "MIT", &["anyhow"]),
            ("anyhow", "MIT", &[]),
        ];
        let found = findings(&graph(rows));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("`kino_dataset` must not depend on `anyhow`"),
            "{found:?}"
        );
    }
}
