//! The licences of everything we link: none may require more of a user of the wheel than attribution.
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

/// One sentence for each package whose licence is missing, unreadable or not in `allowed`.
pub(crate) fn findings(graph: &Graph, allowed: &[String]) -> Findings {
    let mut findings = Findings::new();
    for package in graph.packages() {
        let name = &package.name;
        match package
            .licence
            .as_deref()
            .map(|text| (text, is_permitted(text, allowed)))
        {
            None => findings.push(format!("`{name}` declares no licence")),
            Some((text, None)) => {
                findings.push(format!("`{name}`: cannot read the licence `{text}`"))
            }
            Some((text, Some(false))) => findings.push(format!(
                "`{name}` has the licence `{text}`, which is not in `allow` of deny.toml"
            )),
            Some((_, Some(true))) => {}
        }
    }
    findings
}

/// An expression in SPDX syntax: cargo used to write a slash for "or".
pub(crate) fn to_spdx(expression: &str) -> String {
    expression.replace('/', " OR ")
}

/// Whether the package can be used under allowed licences alone; `None` if the text is not an SPDX expression.
fn is_permitted(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = to_spdx(expression).replace('(', " ( ").replace(')', " ) ");
    let mut tokens = spaced.split_whitespace().peekable();
    let permitted = choice(&mut tokens, allowed)?;
    tokens.next().is_none().then_some(permitted)
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn choice(tokens: &mut Tokens<'_>, allowed: &[String]) -> Option<bool> {
    let mut permitted = all(tokens, allowed)?;
    while tokens.next_if_eq(&"OR").is_some() {
        permitted |= all(tokens, allowed)?;
    }
    Some(permitted)
}

fn all(tokens: &mut Tokens<'_>, allowed: &[String]) -> Option<bool> {
    let mut permitted = one(tokens, allowed)?;
    while tokens.next_if_eq(&"AND").is_some() {
        permitted &= one(tokens, allowed)?;
    }
    Some(permitted)
}

fn one(tokens: &mut Tokens<'_>, allowed: &[String]) -> Option<bool> {
    let token = tokens.next()?;
    if token == "(" {
        let permitted = choice(tokens, allowed)?;
        return (tokens.next()? == ")").then_some(permitted);
    }
    if [")", "OR", "AND", "WITH"].contains(&token) {
        return None;
    }
    let mut licence = token.to_owned();
    if tokens.next_if_eq(&"WITH").is_some() {
        licence = format!("{licence} WITH {}", tokens.next()?);
    }
    Some(allowed.contains(&licence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::graph;

    fn allowed() -> Vec<String> {
        [
            "MIT",
            "Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "Unicode-3.0",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    #[test]
    fn a_choice_passes_when_one_side_does() {
        for text in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "Apache-2.0 WITH LLVM-exception",
            "(MIT OR GPL-3.0-only) AND Unicode-3.0",
        ] {
            assert_eq!(is_permitted(text, &allowed()), Some(true), "{text}");
        }
    }

    #[test]
    fn unlisted_licences_are_not_permitted() {
        for text in [
            "GPL-3.0-only",
            "AGPL-3.0-or-later",
            "LGPL-2.1-only",
            "MIT AND GPL-2.0-only",
            "(GPL-2.0-only OR LGPL-3.0-only) AND MIT",
            "GPL-2.0-only WITH Classpath-exception-2.0",
            "MIT WITH Classpath-exception-2.0",
            "MPL-2.0",
        ] {
            assert_eq!(is_permitted(text, &allowed()), Some(false), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_an_expression_is_an_error() {
        for text in [
            "",
            "(MIT",
            "MIT)",
            "MIT OR",
            "AND MIT",
            "MIT Apache-2.0",
            "MIT WITH",
        ] {
            assert_eq!(is_permitted(text, &allowed()), None, "{text}");
        }
    }

    #[test]
    fn each_package_is_checked() {
        let graph = graph(&[
            ("kino_codec", "MIT", &["a", "b"]),
            ("a", "GPL-3.0-only", &[]),
            ("b", "?? )", &[]),
        ]);
        assert_eq!(findings(&graph, &allowed()).len(), 2);
    }
}
