//! One version number: every crate has it, the wheel takes it from there, the changelog has an entry for it.

use std::path::Path;

use anyhow::{Context, Result};

use crate::Findings;
use crate::metadata::Graph;

/// Everything that disagrees about the version.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let read = |name: &str| {
        std::fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))
    };
    let graph = Graph::read(root)?;
    Ok(findings(
        &graph,
        &read("pyproject.toml")?,
        &read("CHANGELOG.md")?,
    ))
}

fn findings(graph: &Graph, pyproject: &str, changelog: &str) -> Findings {
    let mut findings = Findings::new();
    let Some(first) = graph.members().next() else {
        return vec!["the workspace has no members".to_owned()];
    };
    for package in graph
        .members()
        .filter(|package| package.version != first.version)
    {
        findings.push(format!(
            "`{}` has version {}, `{}` has {}; write `version.workspace = true`",
            package.name, package.version, first.name, first.version
        ));
    }
    if !pyproject
        .lines()
        .any(|line| line.replace(' ', "") == "dynamic=[\"version\"]")
    {
        findings.push(
            "pyproject.toml: the wheel must take its version from Cargo: dynamic = [\"version\"]"
                .to_owned(),
        );
    }
    if pyproject
        .lines()
        .any(|line| line.replace(' ', "").starts_with("version="))
    {
        findings.push("pyproject.toml has its own version; remove it".to_owned());
    }
    let heading = format!("## [{}]", first.version);
    if !changelog.lines().any(|line| line.starts_with(&heading)) {
        findings.push(format!("CHANGELOG.md has no entry `{heading}`"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::graph;

    const PYPROJECT: &str = "[project]\ndynamic = [\"version\"]\n";
    const CHANGELOG: &str = "# Changelog\n\n## [0.1.0] - unreleased\n";

    #[test]
    fn one_number_everywhere_passes() {
        let graph = graph(&[("kino_codec", "MIT", &[]), ("kino_py", "MIT", &[])]);
        assert_eq!(findings(&graph, PYPROJECT, CHANGELOG), Findings::new());
    }

    #[test]
    fn a_version_written_for_the_wheel_is_found() {
        let graph = graph(&[("kino_codec", "MIT", &[])]);
        let pyproject = "[project]\nversion = \"0.2.0\"\n";
        assert_eq!(findings(&graph, pyproject, CHANGELOG).len(), 2);
    }

    #[test]
    fn a_missing_changelog_entry_is_found() {
        let graph = graph(&[("kino_codec", "MIT", &[])]);
        assert_eq!(
            findings(&graph, PYPROJECT, "# Changelog\n"),
            ["CHANGELOG.md has no entry `## [0.1.0]`"]
        );
    }

    #[test]
    fn a_crate_with_its_own_version_is_found() {
        let package = |name: &str, version: &str| serde_json::json!({ "id": name, "name": name, "version": version, "license": "MIT", "dependencies": [] });
        let metadata = serde_json::json!({
            "packages": [package("kino_codec", "0.1.0"), package("kino_py", "0.2.0")],
            "workspace_members": ["kino_codec", "kino_py"],
            "resolve": { "nodes": [] },
        });
        let graph = Graph::parse(&metadata).unwrap();
        assert_eq!(findings(&graph, PYPROJECT, CHANGELOG).len(), 1);
    }
}
