//! Relative links in Markdown files: the file must exist, and so must the heading after `#`.
//!
//! Addresses with a scheme (`https:`) are not followed: a check that needs the network fails for unrelated reasons.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::Findings;
use crate::metadata::stdout_of;

/// Every broken relative link in all Markdown files that git tracks or would add.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let names = stdout_of(Command::new("git").current_dir(root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
        "*.md",
    ]))?;
    let mut findings = Findings::new();
    for name in names.lines() {
        let path = root.join(name);
        if path.exists() {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
            findings.extend(
                broken(&path, &text)
                    .into_iter()
                    .map(|link| format!("{name}: `{link}` is a broken link")),
            );
        }
    }
    Ok(findings)
}

/// The broken links of one file.
fn broken(path: &Path, text: &str) -> Vec<String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let leads_somewhere = |link: &str| {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() {
            path.to_path_buf()
        } else {
            folder.join(file)
        };
        if heading.is_empty() || target.extension().is_none_or(|extension| extension != "md") {
            return target.exists();
        }
        if file.is_empty() {
            return headings(text).contains(heading);
        }
        std::fs::read_to_string(&target).is_ok_and(|text| headings(&text).contains(heading))
    };
    links(text)
        .into_iter()
        .filter(|link| !leads_somewhere(link))
        .map(str::to_owned)
        .collect()
}

/// The lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// Relative targets of `[text](target)`.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Between two backticks a link is only an example of one.
        for (idx, part) in line.split('`').enumerate() {
            let is_code = idx % 2 == 1;
            for after in part.split("](").skip(1) {
                if let (false, Some((target, _))) = (is_code, after.split_once(')')) {
                    found.push(target.split_whitespace().next().unwrap_or_default());
                }
            }
        }
    }
    found.retain(|link| !link.contains("://") && !link.starts_with("mailto:"));
    found
}

/// The anchors that a renderer generates from the headings.
fn headings(text: &str) -> BTreeSet<String> {
    prose(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This file's own folder has known neighbours.
    fn broken_here(text: &str) -> Vec<String> {
        broken(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("notes.md"),
            text,
        )
    }

    #[test]
    fn an_existing_file_passes() {
        assert!(
            broken_here(
                "see [main](src/main.rs) and [the sources](src), or [web](https://example.org/x)"
            )
            .is_empty()
        );
    }

    #[test]
    fn a_missing_file_is_found() {
        assert_eq!(
            broken_here("see [it](src/attic.rs) and [main](src/main.rs)"),
            ["src/attic.rs"]
        );
    }

    #[test]
    fn a_text_with_backticks_is_still_a_link() {
        assert_eq!(
            broken_here("see [`attic.rs`](src/attic.rs)"),
            ["src/attic.rs"]
        );
    }

    #[test]
    fn a_missing_heading_is_found() {
        let text = "# Pages, and `why`\n[good](#pages-and-why) [bad](#shards)\n";
        assert_eq!(broken_here(text), ["#shards"]);
    }

    #[test]
    fn code_has_no_links() {
        assert!(broken_here("`[x](nowhere)`\n```text\n[y](nowhere)\n```\n").is_empty());
    }
}
