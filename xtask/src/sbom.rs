//! The contents of the wheel: a CycloneDX 1.5 bill of materials of `cargo metadata`, `Cargo.lock` and C libraries.
//!
//! ```text
//! kinograph (wheel) ─▶ kino_py ─▶ crates, each with purl, licence and the checksum of Cargo.lock
//!                                   turbojpeg-sys ─▶ libjpeg-turbo        zstd-sys ─▶ zstd
//! ```
//!
//! It contains neither a time nor a random number: the same lock file gives the same bytes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::deny::checksums;
use crate::licences::to_spdx;
use crate::metadata::{Graph, Package};

/// The crate that becomes the wheel's library.
const ROOT: &str = "kino_py";

/// A C library that a crate compiles in from its own folder.
struct Vendored {
    by: &'static str,
    name: &'static str,
    purl: &'static str,
    licence: &'static str,
    version: fn(&Package) -> Result<String>,
}

const VENDORED: &[Vendored] = &[
    Vendored {
        by: "turbojpeg-sys",
        name: "libjpeg-turbo",
        purl: "pkg:github/libjpeg-turbo/libjpeg-turbo@",
        licence: "IJG AND BSD-3-Clause AND Zlib",
        version: version_in_cmake,
    },
    Vendored {
        by: "zstd-sys",
        name: "zstd",
        purl: "pkg:github/facebook/zstd@v",
        licence: "BSD-3-Clause",
        version: version_in_version,
    },
];

/// Writes the bill of materials of the wheel.
pub(crate) fn write(root: &Path, target: &Path) -> Result<()> {
    let text = format!("{:#}\n", of(&Graph::read(root)?, &checksums(root)?)?);
    std::fs::write(target, text).with_context(|| format!("cannot write {}", target.display()))?;
    println!("sbom: {}", target.display());
    Ok(())
}

fn of(graph: &Graph, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let linked = graph.linked_by(ROOT);
    let (root, _) = linked
        .iter()
        .find(|(package, _)| package.name == ROOT)
        .with_context(|| format!("there is no crate `{ROOT}`"))?;
    let wheel = format!("pkg:pypi/kinograph@{}", root.version);
    let mut components = Vec::new();
    let mut edges = vec![json!({ "ref": wheel, "dependsOn": [purl(root)] })];
    for (package, needs) in &linked {
        let mut needs: Vec<String> = needs.iter().map(|package| purl(package)).collect();
        let key = (package.name.clone(), package.version.clone());
        components.push(component(package, checksums.get(&key)));
        for library in VENDORED.iter().filter(|library| library.by == package.name) {
            let version = (library.version)(package)?;
            let purl = format!("{}{version}", library.purl);
            components.push(json!({
                "type": "library", "bom-ref": purl, "name": library.name, "version": version, "purl": purl,
                "licenses": [{ "expression": library.licence }],
            }));
            edges.push(json!({ "ref": purl, "dependsOn": [] }));
            needs.push(purl);
        }
        edges.push(json!({ "ref": purl(package), "dependsOn": needs }));
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library", "bom-ref": wheel, "name": "kinograph", "version": root.version, "purl": wheel,
                "licenses": [{ "expression": licence(root) }],
            },
            "tools": { "components": [{ "type": "application", "name": "cargo xtask sbom" }] },
        },
        "components": components,
        "dependencies": edges,
    }))
}

fn component(package: &Package, checksum: Option<&String>) -> Value {
    let purl = purl(package);
    let mut component = json!({
        "type": "library", "bom-ref": purl, "name": package.name, "version": package.version, "purl": purl,
        "licenses": [{ "expression": licence(package) }],
    });
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

fn licence(package: &Package) -> String {
    to_spdx(package.licence.as_deref().unwrap_or("NOASSERTION"))
}

/// A package URL, in which a plus is an escape.
fn purl(package: &Package) -> String {
    format!(
        "pkg:cargo/{}@{}",
        package.name,
        package.version.replace('+', "%2B")
    )
}

/// libjpeg-turbo's version, from its build file.
fn version_in_cmake(package: &Package) -> Result<String> {
    let file = package
        .manifest
        .with_file_name("libjpeg-turbo")
        .join("CMakeLists.txt");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", file.display()))?;
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("set(VERSION ")?.strip_suffix(')'));
    Ok(version
        .with_context(|| format!("{} does not state a version", file.display()))?
        .to_owned())
}

/// zstd's version, from the crate's own: `2.1.2+zstd.1.5.7`.
fn version_in_version(package: &Package) -> Result<String> {
    let version = package
        .version
        .split_once("+zstd.")
        .map(|(_, version)| version.to_owned());
    version.with_context(|| {
        format!(
            "version {} of {} does not contain the zstd version",
            package.version, package.name
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn bill() -> Value {
        let root = crate::root().unwrap();
        of(&Graph::read(&root).unwrap(), &checksums(&root).unwrap()).unwrap()
    }

    fn text<'a>(value: &'a Value, name: &str) -> &'a str {
        value[name]
            .as_str()
            .unwrap_or_else(|| panic!("`{name}` of {value}"))
    }

    #[test]
    fn every_component_is_listed_once_with_its_licence_and_origin() {
        let bill = bill();
        assert_eq!(
            (text(&bill, "bomFormat"), text(&bill, "specVersion")),
            ("CycloneDX", "1.5")
        );
        let components = bill["components"].as_array().unwrap();
        let mut refs = BTreeSet::from([text(&bill["metadata"]["component"], "bom-ref")]);
        for component in components {
            assert!(
                refs.insert(text(component, "bom-ref")),
                "{component} is listed twice"
            );
            assert!(text(component, "purl").starts_with("pkg:"));
            assert_ne!(text(&component["licenses"][0], "expression"), "NOASSERTION");
            assert!(!text(component, "version").is_empty());
            let is_ours = text(component, "name").starts_with("kino_");
            let is_crate = text(component, "purl").starts_with("pkg:cargo/");
            let hash = component["hashes"][0]["content"].as_str();
            assert_eq!(
                hash.is_some_and(|hash| hash.len() == 64),
                is_crate && !is_ours,
                "{component}"
            );
        }
        let edges = bill["dependencies"].as_array().unwrap();
        let from: BTreeSet<&str> = edges.iter().map(|edge| text(edge, "ref")).collect();
        assert_eq!(from, refs);
        assert_eq!(from.len(), edges.len());
        for edge in edges {
            for to in edge["dependsOn"].as_array().unwrap() {
                assert!(
                    refs.contains(to.as_str().unwrap()),
                    "{to} is not a component"
                );
            }
        }
    }

    #[test]
    fn it_has_what_cargo_links_and_the_c_libraries() {
        let bill = bill();
        let components = bill["components"].as_array().unwrap();
        let names: BTreeSet<&str> = components
            .iter()
            .map(|component| text(component, "name"))
            .collect();
        for name in [
            "libjpeg-turbo",
            "zstd",
            "kino_py",
            "kino_codec",
            "re_rav1d",
            "rust_h264",
            "parquet",
            "pyo3",
        ] {
            assert!(names.contains(name), "{name} is missing");
        }
        assert!(!names.contains("proptest"), "only for tests");
        let purls: Vec<&str> = components
            .iter()
            .map(|component| text(component, "purl"))
            .collect();
        for library in [
            "pkg:github/libjpeg-turbo/libjpeg-turbo@3.",
            "pkg:github/facebook/zstd@v1.",
        ] {
            assert!(
                purls.iter().any(|purl| purl.starts_with(library)),
                "{library}"
            );
        }
    }
}
