//! The part of `cargo metadata` that the checks use: packages, what they declare, what they pull in.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// One package of the dependency graph.
#[derive(Debug)]
pub(crate) struct Package {
    /// Its name in `Cargo.toml`.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its SPDX expression, if it declares one.
    pub(crate) licence: Option<String>,
    /// Where it comes from; `None` for a folder.
    pub(crate) source: Option<String>,
    /// Its `Cargo.toml`.
    pub(crate) manifest: PathBuf,
    /// Whether it lives in this workspace.
    pub(crate) is_member: bool,
    /// Names it declares as dependencies of any kind, including those of tests and build scripts.
    pub(crate) declared: Vec<String>,
    /// Ids of what is linked into it. Build scripts and tests are excluded: their dependencies do not reach a user.
    linked: Vec<String>,
}

/// The dependency graph of the workspace on this platform, by package id.
#[derive(Debug)]
pub(crate) struct Graph {
    packages: BTreeMap<String, Package>,
}

impl Graph {
    /// Runs cargo for this platform only, so that nothing needs to be downloaded that was not built.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let text = stdout_of(Command::new(env!("CARGO")).current_dir(root).args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--filter-platform",
            host(root)?.as_str(),
        ]))?;
        let metadata = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
        Self::parse(&metadata)
    }

    /// Parses the JSON that `cargo metadata --format-version 1` prints.
    pub(crate) fn parse(metadata: &Value) -> Result<Self> {
        let members: Vec<&str> = strings(&metadata["workspace_members"])?;
        let mut packages = BTreeMap::new();
        for package in list(&metadata["packages"])? {
            let id = string(&package["id"])?;
            let declared = list(&package["dependencies"])?
                .iter()
                .map(|dependency| Ok(string(&dependency["name"])?.to_owned()))
                .collect::<Result<_>>()?;
            let parsed = Package {
                name: string(&package["name"])?.to_owned(),
                version: string(&package["version"])?.to_owned(),
                licence: package["license"].as_str().map(str::to_owned),
                source: package["source"].as_str().map(str::to_owned),
                manifest: package["manifest_path"].as_str().unwrap_or("").into(),
                is_member: members.contains(&id),
                declared,
                linked: Vec::new(),
            };
            packages.insert(id.to_owned(), parsed);
        }
        for node in list(&metadata["resolve"]["nodes"])? {
            let id = string(&node["id"])?;
            let package = packages
                .get_mut(id)
                .with_context(|| format!("`{id}` is resolved but not listed"))?;
            for dependency in list(&node["deps"])? {
                // A dependency's kind is null when it is linked, else "dev" or "build".
                if list(&dependency["dep_kinds"])?
                    .iter()
                    .any(|kind| kind["kind"].is_null())
                {
                    package.linked.push(string(&dependency["pkg"])?.to_owned());
                }
            }
        }
        Ok(Self { packages })
    }

    /// Every package, third-party ones too.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.values()
    }

    /// The package of this name and everything it links, transitively: each with its own links.
    pub(crate) fn linked_by(&self, name: &str) -> Vec<(&Package, Vec<&Package>)> {
        let is_root = |(_, package): &(&String, &Package)| package.name == name;
        let mut waiting: Vec<&str> = self
            .packages
            .iter()
            .find(is_root)
            .map(|(id, _)| id.as_str())
            .into_iter()
            .collect();
        let mut reached = BTreeMap::new();
        while let Some(id) = waiting.pop() {
            let Some(package) = self.packages.get(id) else {
                continue;
            };
            if reached.insert(id, package).is_none() {
                waiting.extend(package.linked.iter().map(String::as_str));
            }
        }
        let linked = |package: &Package| {
            package
                .linked
                .iter()
                .filter_map(|id| self.packages.get(id))
                .collect()
        };
        reached
            .into_values()
            .map(|package| (package, linked(package)))
            .collect()
    }

    /// The packages of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages().filter(|package| package.is_member)
    }

    /// The shortest path along which package `from` links package `to`, both ends included.
    pub(crate) fn path(&self, from: &str, to: &str) -> Option<Vec<&str>> {
        let (start, _) = self
            .packages
            .iter()
            .find(|(_, package)| package.name == from)?;
        let mut reached_from: BTreeMap<&str, Option<&str>> =
            BTreeMap::from([(start.as_str(), None)]);
        let mut waiting = VecDeque::from([start.as_str()]);
        while let Some(id) = waiting.pop_front() {
            let package = self.packages.get(id)?;
            if package.name == to && id != start {
                return Some(self.walk_back(&reached_from, id));
            }
            for next in &package.linked {
                if !reached_from.contains_key(next.as_str()) {
                    reached_from.insert(next, Some(id));
                    waiting.push_back(next);
                }
            }
        }
        None
    }

    fn walk_back(&self, reached_from: &BTreeMap<&str, Option<&str>>, end: &str) -> Vec<&str> {
        let mut names = Vec::new();
        let mut at = Some(end);
        while let Some(id) = at {
            names.extend(self.packages.get(id).map(|package| package.name.as_str()));
            at = reached_from.get(id).copied().flatten();
        }
        names.reverse();
        names
    }
}

/// The triple of this platform, as rustc names it.
fn host(root: &Path) -> Result<String> {
    let text = stdout_of(Command::new("rustc").current_dir(root).arg("-vV"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("`rustc -vV` names no host")?.to_owned())
}

/// Runs a command to completion and returns its stdout; its stderr is passed through.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        output.status
    );
    String::from_utf8(output.stdout)
        .with_context(|| format!("{command:?} printed something that is not UTF-8"))
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value
        .as_array()
        .with_context(|| format!("cargo metadata: expected a list, found {value}"))
}

fn string(value: &Value) -> Result<&str> {
    value
        .as_str()
        .with_context(|| format!("cargo metadata: expected a string, found {value}"))
}

fn strings(value: &Value) -> Result<Vec<&str>> {
    list(value)?.iter().map(string).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A graph from (name, licence, linked names); names that start with `kino_` are members, all of version 0.1.0.
    pub(crate) fn graph(packages: &[(&str, &str, &[&str])]) -> Graph {
        let listed: Vec<Value> = packages
            .iter()
            .map(|(name, licence, linked)| {
                let declared: Vec<Value> = linked.iter().map(|name| json!({ "name": name })).collect();
                let source = (!name.starts_with("kino_")).then_some("registry+https://example.org/index");
                json!({ "id": name, "name": name, "version": "0.1.0", "license": licence, "dependencies": declared, "source": source })
            })
            .collect();
        let nodes: Vec<Value> = packages
            .iter()
            .map(|(name, _, linked)| {
                let deps: Vec<Value> = linked
                    .iter()
                    .map(|name| json!({ "pkg": name, "dep_kinds": [{ "kind": null }] }))
                    .collect();
                json!({ "id": name, "deps": deps })
            })
            .collect();
        let members: Vec<&str> = packages
            .iter()
            .map(|(name, ..)| *name)
            .filter(|name| name.starts_with("kino_"))
            .collect();
        let metadata = json!({ "packages": listed, "resolve": { "nodes": nodes }, "workspace_members": members });
        Graph::parse(&metadata).unwrap()
    }

    #[test]
    fn a_path_is_the_shortest_one() {
        let graph = graph(&[
            ("kino_codec", "MIT", &["a", "c"]),
            ("a", "MIT", &["b"]),
            ("b", "MIT", &["c"]),
            ("c", "MIT", &["d"]),
            ("d", "MIT", &["a"]),
        ]);
        assert_eq!(
            graph.path("kino_codec", "d"),
            Some(vec!["kino_codec", "c", "d"])
        );
        assert_eq!(graph.path("kino_codec", "kino_codec"), None);
        assert_eq!(graph.path("d", "kino_codec"), None);
    }

    #[test]
    fn what_only_tests_and_build_scripts_use_is_not_linked() {
        let package = |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT", "dependencies": [] });
        let metadata = json!({
            "packages": [package("kino_codec"), package("proptest"), package("cmake")],
            "workspace_members": ["kino_codec"],
            "resolve": { "nodes": [{ "id": "kino_codec", "deps": [
                { "pkg": "proptest", "dep_kinds": [{ "kind": "dev" }] },
                { "pkg": "cmake", "dep_kinds": [{ "kind": "build" }] },
            ] }] },
        });
        let graph = Graph::parse(&metadata).unwrap();
        assert_eq!(graph.path("kino_codec", "proptest"), None);
        assert_eq!(graph.path("kino_codec", "cmake"), None);
    }

    #[test]
    fn metadata_of_another_shape_is_an_error() {
        assert!(Graph::parse(&json!({})).is_err());
        assert!(
            Graph::parse(
                &json!({ "packages": [{}], "workspace_members": [], "resolve": { "nodes": [] } })
            )
            .is_err()
        );
    }
}
