//! The licences of everything we link: none may oblige a user of the wheel to more than naming its authors.
//!
//! A licence is an SPDX expression, and a choice (`OR`) passes when one side does:
//!
//! ```text
//! choice := all { "OR" all }        MIT OR LGPL-2.1-or-later          passes
//! all    := one { "AND" one }       MIT AND GPL-3.0-only              does not
//! one    := "(" choice ")" | name [ "WITH" name ]
//! ```

use crate::Findings;
use crate::metadata::Graph;

/// How the names of the licences begin that we do not ship.
const COPYLEFT: &[&str] = &["GPL", "AGPL", "LGPL"];

/// One sentence for each package whose licence is missing, unreadable or copyleft.
pub(crate) fn findings(graph: &Graph) -> Findings {
    let mut findings = Findings::new();
    for package in graph.packages() {
        let name = &package.name;
        match package
            .licence
            .as_deref()
            .map(|text| (text, is_permitted(text)))
        {
            None => findings.push(format!("`{name}` declares no licence")),
            Some((text, None)) => {
                findings.push(format!("`{name}`: cannot read the licence `{text}`"))
            }
            Some((text, Some(false))) => findings.push(format!(
                "`{name}` has the licence `{text}`, which we cannot ship"
            )),
            Some((_, Some(true))) => {}
        }
    }
    findings
}

/// Whether one can take the package without taking a copyleft licence; `None` if that is not an SPDX expression.
fn is_permitted(expression: &str) -> Option<bool> {
    // Before SPDX expressions cargo used a slash for "or".
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let permitted = choice(&mut words)?;
    words.next().is_none().then_some(permitted)
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn choice(words: &mut Words<'_>) -> Option<bool> {
    let mut permitted = all(words)?;
    while words.next_if_eq(&"OR").is_some() {
        permitted |= all(words)?;
    }
    Some(permitted)
}

fn all(words: &mut Words<'_>) -> Option<bool> {
    let mut permitted = one(words)?;
    while words.next_if_eq(&"AND").is_some() {
        permitted &= one(words)?;
    }
    Some(permitted)
}

fn one(words: &mut Words<'_>) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let permitted = choice(words)?;
        return (words.next()? == ")").then_some(permitted);
    }
    if [")", "OR", "AND", "WITH"].contains(&word) {
        return None;
    }
    if words.next_if_eq(&"WITH").is_some() {
        words.next()?;
    }
    Some(!COPYLEFT.iter().any(|prefix| word.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::graph;

    #[test]
    fn a_choice_passes_when_one_side_does() {
        for text in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "Apache-2.0 WITH LLVM-exception",
            "(MIT OR GPL-3.0-only) AND Unicode-3.0",
        ] {
            assert_eq!(is_permitted(text), Some(true), "{text}");
        }
    }

    #[test]
    fn copyleft_is_not_permitted() {
        for text in [
            "GPL-3.0-only",
            "AGPL-3.0-or-later",
            "LGPL-2.1-only",
            "MIT AND GPL-2.0-only",
            "(GPL-2.0-only OR LGPL-3.0-only) AND MIT",
            "GPL-2.0-only WITH Classpath-exception-2.0",
        ] {
            assert_eq!(is_permitted(text), Some(false), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_not_guessed_at() {
        for text in [
            "",
            "(MIT",
            "MIT)",
            "MIT OR",
            "AND MIT",
            "MIT Apache-2.0",
            "MIT WITH",
        ] {
            assert_eq!(is_permitted(text), None, "{text}");
        }
    }

    #[test]
    fn each_package_is_looked_at() {
        let graph = graph(&[
            ("kino_codec", "MIT", &["a", "b"]),
            ("a", "GPL-3.0-only", &[]),
            ("b", "?? )", &[]),
        ]);
        assert_eq!(findings(&graph).len(), 2);
    }
}
