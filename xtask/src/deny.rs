//! What we may depend on, according to `deny.toml`: licences, sources, one version of each crate, nothing unmaintained.
//!
//! `cargo deny` reads the same file. It takes minutes to compile and must fetch its advisory database, so every check
//! that works without the database is done here, always; if `cargo-deny` is installed, it runs too.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::metadata::Graph;
use crate::{Findings, licences};

/// The part of `deny.toml` that is checked here.
#[derive(Debug, Deserialize)]
struct Rules {
    licenses: Licences,
    sources: Sources,
    bans: Bans,
    advisories: Advisories,
}

#[derive(Debug, Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    skip: Vec<Entry>,
    deny: Vec<Entry>,
}

/// A crate, `name` or `name@version`, and why it is listed.
#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "crate")]
    spec: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Advisories {
    ignore: Vec<Ignored>,
}

/// An accepted advisory; the reason begins with the name of the crate and a colon.
#[derive(Debug, Deserialize)]
struct Ignored {
    id: String,
    reason: String,
}

/// Everything in the dependency graph that `deny.toml` does not allow, and every exception that is no longer needed.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let path = root.join("deny.toml");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let rules: Rules = toml::from_str(&text).context("deny.toml")?;
    for accepted in &rules.advisories.ignore {
        println!("deny: accepted: {} ({})", accepted.id, accepted.reason);
    }
    Ok(findings(&Graph::read(root)?, &rules))
}

fn findings(graph: &Graph, rules: &Rules) -> Findings {
    let mut findings = licences::findings(graph, &rules.licenses.allow);
    findings.extend(foreign_sources(graph, &rules.sources.allow_registry));
    findings.extend(versions(graph, &rules.bans.skip));
    let is_linked = |name: &str| graph.packages().any(|package| package.name == name);
    for entry in rules
        .bans
        .deny
        .iter()
        .filter(|entry| is_linked(&entry.spec))
    {
        findings.push(format!(
            "`{}` is unmaintained: {}",
            entry.spec, entry.reason
        ));
    }
    for entry in &rules.advisories.ignore {
        let name = entry.reason.split(':').next().unwrap_or("");
        if !is_linked(name) {
            findings.push(format!(
                "deny.toml accepts {} of `{name}`, but nothing depends on it any more; remove the entry",
                entry.id
            ));
        }
    }
    findings
}

fn foreign_sources(graph: &Graph, registries: &[String]) -> Findings {
    let is_known = |source: &str| {
        let url = source.strip_prefix("registry+");
        url.is_some_and(|url| registries.iter().any(|known| known == url))
    };
    let foreign = graph
        .packages()
        .filter(|package| !package.is_member && !package.source.as_deref().is_some_and(is_known));
    foreign
        .map(|package| {
            let source = package.source.as_deref().unwrap_or("a folder");
            format!(
                "`{}` comes from {source}, which deny.toml does not allow",
                package.name
            )
        })
        .collect()
}

/// Crates with several versions that are not skipped, and skips that skip nothing.
fn versions(graph: &Graph, skip: &[Entry]) -> Findings {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in graph.packages() {
        all.entry(&package.name).or_default().push(&package.version);
    }
    let matches = |entry: &Entry, name: &str, version: &str| {
        let rest = entry
            .spec
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('@'));
        rest.is_some_and(|wanted| version == wanted || version.starts_with(&format!("{wanted}.")))
    };
    let mut findings = Findings::new();
    for (name, versions) in &all {
        let is_skipped = |version: &&str| skip.iter().any(|entry| matches(entry, name, version));
        let left = versions
            .iter()
            .filter(|version| !is_skipped(version))
            .count();
        if left > 1 {
            findings.push(format!(
                "`{name}` has several versions: {}; update what needs the old ones, or list them in `skip` of deny.toml with the reason",
                versions.join(", ")
            ));
        }
    }
    for entry in skip {
        let is_used = all.iter().any(|(name, versions)| {
            versions.len() > 1 && versions.iter().any(|version| matches(entry, name, version))
        });
        if !is_used {
            findings.push(format!(
                "deny.toml skips `{}` ({}), which no longer has several versions; remove the entry",
                entry.spec, entry.reason
            ));
        }
    }
    findings
}

/// Also runs `cargo deny`, if installed; prints a notice if it or its database is unavailable.
/// False if it found something.
pub(crate) fn ask_cargo_deny(root: &Path) -> Result<bool> {
    let deny = |arguments: &[&str]| {
        let mut command = Command::new("cargo-deny");
        command.current_dir(root).arg("--locked").args(arguments);
        command.status()
    };
    if Command::new("cargo-deny")
        .arg("--version")
        .output()
        .is_err()
    {
        println!(
            "deny: ADVISORIES WERE NOT CHECKED: cargo-deny is not installed (`cargo install --locked cargo-deny`); \
             licences, sources, versions and the crates that deny.toml lists were"
        );
        return Ok(true);
    }
    let mut passed = deny(&["check", "licenses", "bans", "sources"])?.success();
    if deny(&["fetch", "db"])?.success() {
        passed &= deny(&["check", "--disable-fetch", "advisories"])?.success();
    } else {
        println!(
            "deny: ADVISORIES WERE NOT CHECKED: the advisory database could not be fetched (see above)"
        );
    }
    Ok(passed)
}

/// The checksums of `Cargo.lock`, by name and version.
pub(crate) fn checksums(root: &Path) -> Result<BTreeMap<(String, String), String>> {
    let text =
        std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let lock: toml::Table = text.parse().context("Cargo.lock")?;
    let Some(packages) = lock.get("package").and_then(toml::Value::as_array) else {
        bail!("Cargo.lock lists no packages");
    };
    let field = |package: &toml::Value, name: &str| Some(package.get(name)?.as_str()?.to_owned());
    let entry = |package| {
        let key = (field(package, "name")?, field(package, "version")?);
        Some((key, field(package, "checksum")?))
    };
    Ok(packages.iter().filter_map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::graph;

    fn rules(skip: &[&str], deny: &[&str], ignored: &[&str]) -> Rules {
        let entry = |spec: &&str| Entry {
            spec: (*spec).to_owned(),
            reason: "because".to_owned(),
        };
        let ignore = |name: &&str| Ignored {
            id: "RUSTSEC-0".to_owned(),
            reason: format!("{name}: because"),
        };
        Rules {
            licenses: Licences {
                allow: vec!["MIT".to_owned()],
            },
            sources: Sources {
                allow_registry: vec!["https://example.org/index".to_owned()],
            },
            bans: Bans {
                skip: skip.iter().map(entry).collect(),
                deny: deny.iter().map(entry).collect(),
            },
            advisories: Advisories {
                ignore: ignored.iter().map(ignore).collect(),
            },
        }
    }

    #[test]
    fn each_rule_finds_what_breaks_it() {
        let graph = graph(&[
            ("kino_codec", "MIT", &["a", "b"]),
            ("a", "GPL-3.0-only", &[]),
            ("b", "MIT", &[]),
        ]);
        let found = |rules: &Rules| findings(&graph, rules);
        let licence = found(&rules(&[], &[], &[]));
        assert_eq!(licence.len(), 1);
        assert!(licence[0].contains("GPL-3.0-only"), "{licence:?}");
        let all = found(&rules(&["b@0"], &["b"], &["gone", "a"]));
        let text = all.join("\n");
        assert!(text.contains("`b` is unmaintained: because"), "{text}");
        assert!(text.contains("skips `b@0`"), "{text}");
        assert!(text.contains("RUSTSEC-0 of `gone`"), "{text}");
        assert_eq!(all.len(), 4, "{text}");
        let mut elsewhere = rules(&[], &[], &[]);
        elsewhere.sources.allow_registry = vec!["https://example.org/other".to_owned()];
        assert_eq!(
            found(&elsewhere).len(),
            3,
            "both sources, and the licence of a"
        );
    }

    #[test]
    fn a_second_version_needs_a_reason() {
        let package = |version: &str| {
            serde_json::json!({ "id": version, "name": "a", "version": version, "license": "MIT", "dependencies": [],
                "source": "registry+https://example.org/index" })
        };
        let metadata = serde_json::json!({
            "packages": [package("1.2.0"), package("0.12.1")],
            "workspace_members": [],
            "resolve": { "nodes": [] },
        });
        let graph = Graph::parse(&metadata).unwrap();
        assert_eq!(findings(&graph, &rules(&[], &[], &[])).len(), 1);
        assert_eq!(
            findings(&graph, &rules(&["a@0.12"], &[], &[])),
            Findings::new()
        );
        // A version is not a prefix of another one, and a name not of another name.
        assert_eq!(findings(&graph, &rules(&["a@0.1"], &[], &[])).len(), 2);
        assert_eq!(findings(&graph, &rules(&["@0.12"], &[], &[])).len(), 2);
    }

    #[test]
    fn this_workspace_follows_its_rules() {
        assert_eq!(check(&crate::root().unwrap()).unwrap(), Findings::new());
    }
}
