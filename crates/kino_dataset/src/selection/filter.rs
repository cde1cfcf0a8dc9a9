//! A filter's text: conditions on columns of the episode table and on streams, joined by `and`.
//!
//! ```text
//! success and frames >= 100 and task in ["lift", "can"] and not `odd name` and operator != null and has("wrist")
//! ```
//!
//! No parentheses and no `or`: the text is parsed once from left to right, without recursion. A null matches nothing but
//! `== null`. `has("wrist")` selects the episodes with frames of that stream, `not has("wrist")` the others.

use super::condition::{Condition, Op, Test, Value};
use crate::dataset::Dataset;
use crate::error::{DatasetError, Result, invalid};

/// Upper limit of the length of a filter.
const MAX_FILTER_BYTES: usize = 1 << 16;

/// Upper limit of the number of conditions.
const MAX_CONDITIONS: usize = 256;

/// Keeps the rows for which every condition holds.
pub(super) fn keep(filter: &str, dataset: &Dataset, rows: &mut Vec<u32>) -> Result<()> {
    for condition in parse(filter)? {
        condition.keep(dataset, rows)?;
    }
    Ok(())
}

/// A token of a filter, and where it starts.
#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A column, or a keyword such as `and`.
    Word(String),
    /// A column in backticks.
    Column(String),
    Value(Value),
    Op(Op),
    Open,
    Close,
    OpenRound,
    CloseRound,
    Comma,
}

fn parse(filter: &str) -> Result<Vec<Condition>> {
    if filter.len() > MAX_FILTER_BYTES {
        return Err(invalid(format!(
            "the filter has {} bytes, at most {MAX_FILTER_BYTES} are allowed; list the episodes instead",
            filter.len()
        )));
    }
    let mut parser = Parser {
        tokens: tokens(filter)?,
        next: 0,
        filter,
    };
    let mut conditions = Vec::new();
    loop {
        let start = parser.next;
        let (column, test) = parser.condition()?;
        let text = parser.text(start);
        conditions.push(Condition { column, test, text });
        if conditions.len() > MAX_CONDITIONS {
            return Err(invalid(format!(
                "the filter has more than {MAX_CONDITIONS} conditions; use `in [ … ]`"
            )));
        }
        match parser.take() {
            None => return Ok(conditions),
            Some(Token::Word(word)) if word == "and" => {}
            Some(Token::Word(word)) if word == "or" => {
                return Err(parser.wrong("`or` is not supported; use `column in [ … ]`"));
            }
            Some(_) => return Err(parser.wrong("join conditions with `and`")),
        }
    }
}

/// Parses the tokens of a filter from left to right.
struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    next: usize,
    filter: &'a str,
}

impl Parser<'_> {
    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).map(|(_, token)| token.clone());
        self.next += 1;
        token
    }

    fn peek_word(&self, word: &str) -> bool {
        matches!(self.tokens.get(self.next), Some((_, Token::Word(found))) if found == word)
    }

    fn condition(&mut self) -> Result<(String, Test)> {
        if self.peek_word("not") {
            self.next += 1;
            let column = self.column()?;
            return if self.is_call(&column) {
                Ok((self.stream()?, Test::Has(false)))
            } else {
                Ok((column, Test::Is(false)))
            };
        }
        let column = self.column()?;
        if self.is_call(&column) {
            return Ok((self.stream()?, Test::Has(true)));
        }
        match self.tokens.get(self.next).map(|(_, token)| token.clone()) {
            Some(Token::Op(op)) => {
                self.next += 1;
                let value = self.value()?;
                if value == Value::Null && !matches!(op, Op::Equal | Op::Unequal) {
                    return Err(self.wrong("null can only be compared with `==` and `!=`"));
                }
                Ok((column, Test::Compare(op, value)))
            }
            Some(Token::Word(word)) if word == "in" => {
                self.next += 1;
                Ok((column, Test::In(self.list()?)))
            }
            _ => Ok((column, Test::Is(true))),
        }
    }

    fn column(&mut self) -> Result<String> {
        match self.take() {
            Some(Token::Column(name)) => Ok(name),
            Some(Token::Word(word)) if !matches!(word.as_str(), "and" | "or" | "not" | "in") => {
                Ok(word)
            }
            _ => Err(self.wrong("expected the name of a column")),
        }
    }

    /// Whether `word` is `has` and a bracket follows; a column may have that name too.
    fn is_call(&self, word: &str) -> bool {
        let next = self.tokens.get(self.next).map(|(_, token)| token);
        word == "has" && next == Some(&Token::OpenRound)
    }

    /// The stream in `("…")`.
    fn stream(&mut self) -> Result<String> {
        self.next += 1;
        match (self.take(), self.take()) {
            (Some(Token::Value(Value::Text(name))), Some(Token::CloseRound)) => Ok(name),
            _ => {
                Err(self
                    .wrong("`has` takes the name of a stream in quotes, such as has(\"wrist\")"))
            }
        }
    }

    fn value(&mut self) -> Result<Value> {
        match self.take() {
            Some(Token::Value(value)) => Ok(value),
            Some(Token::Word(word)) => match word.as_str() {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                "null" => Ok(Value::Null),
                _ => Err(self.wrong("put strings in quotes")),
            },
            _ => Err(self.wrong("expected a number, a string in quotes, true, false or null")),
        }
    }

    fn list(&mut self) -> Result<Vec<Value>> {
        if self.take() != Some(Token::Open) {
            return Err(self.wrong("`in` takes a list such as [1, 2]"));
        }
        let mut values = Vec::new();
        loop {
            let value = self.value()?;
            if value == Value::Null {
                return Err(self.wrong("null can only be compared with `==` and `!=`"));
            }
            values.push(value);
            match self.take() {
                Some(Token::Comma) => {}
                Some(Token::Close) => return Ok(values),
                _ => return Err(self.wrong("a list ends with `]`")),
            }
        }
    }

    /// The text from token `start` to the next one.
    fn text(&self, start: usize) -> String {
        let place = |idx: usize| {
            self.tokens
                .get(idx)
                .map_or(self.filter.len(), |(at, _)| *at)
        };
        let text = self.filter.get(place(start)..place(self.next));
        text.unwrap_or_default().trim().to_owned()
    }

    /// An error about the token taken last.
    fn wrong(&self, what: &str) -> DatasetError {
        let token = self.tokens.get(self.next.saturating_sub(1));
        let at = token.map_or(self.filter.len(), |(at, _)| *at);
        wrong(self.filter, at, what)
    }
}

fn wrong(filter: &str, at: usize, what: &str) -> DatasetError {
    let rest = filter.get(at..).unwrap_or_default();
    if rest.is_empty() {
        invalid(format!("the filter ends too early: {what}"))
    } else {
        invalid(format!("invalid filter at byte {at}, `{rest:.40}`: {what}"))
    }
}

fn tokens(filter: &str) -> Result<Vec<(usize, Token)>> {
    let mut tokens = Vec::new();
    let mut rest = filter.trim_start();
    while let Some(first) = rest.chars().next() {
        let at = filter.len() - rest.len();
        let (token, len) = match first {
            '[' => (Token::Open, 1),
            ']' => (Token::Close, 1),
            '(' => (Token::OpenRound, 1),
            ')' => (Token::CloseRound, 1),
            ',' => (Token::Comma, 1),
            '=' | '!' | '<' | '>' => {
                let (op, len) = Op::parse(rest)
                    .ok_or_else(|| wrong(filter, at, "use one of == != < <= > >="))?;
                (Token::Op(op), len)
            }
            '"' | '\'' | '`' => {
                let (text, len) = quoted(rest, first)
                    .ok_or_else(|| wrong(filter, at, "the closing quote is missing"))?;
                match first {
                    '`' => (Token::Column(text), len),
                    _ => (Token::Value(Value::Text(text)), len),
                }
            }
            '0'..='9' | '-' | '+' | '.' => {
                let is_part =
                    |letter: char| letter.is_ascii_alphanumeric() || "+-._".contains(letter);
                let len = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
                let value = number(&rest[..len])
                    .ok_or_else(|| wrong(filter, at, "this is not a number"))?;
                (Token::Value(value), len)
            }
            _ => {
                let is_part = |letter: char| letter.is_alphanumeric() || "_./".contains(letter);
                let len = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
                if len == 0 {
                    return Err(wrong(
                        filter,
                        at,
                        "put column names with such characters in backticks",
                    ));
                }
                (Token::Word(rest[..len].to_owned()), len)
            }
        };
        tokens.push((at, token));
        rest = rest[len..].trim_start();
    }
    Ok(tokens)
}

/// The quoted string at the start of `rest`, and its length with the quotes; a backslash escapes the next character.
fn quoted(rest: &str, quote: char) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => text.push(letters.next()?.1),
            _ if letter == quote => return Some((text, at + 1)),
            _ => text.push(letter),
        }
    }
    None
}

fn number(text: &str) -> Option<Value> {
    if let Ok(whole) = text.parse() {
        return Some(Value::Int(whole));
    }
    let float: f64 = text.parse().ok()?;
    float.is_finite().then_some(Value::Float(float))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::*;

    #[test]
    fn a_filter_is_a_list_of_conditions() {
        let text = |text: &str| Value::Text(text.to_owned());
        let parsed = parse(r#" success and frames>=1e2 and task in ["li\"ft", 'can']and not `odd name` and a.b/c != null "#).unwrap();
        let found: Vec<(&str, &Test)> = parsed
            .iter()
            .map(|condition| (condition.column.as_str(), &condition.test))
            .collect();
        assert_eq!(
            found,
            [
                ("success", &Test::Is(true)),
                ("frames", &Test::Compare(Op::AtLeast, Value::Float(100.0))),
                ("task", &Test::In(vec![text("li\"ft"), text("can")])),
                ("odd name", &Test::Is(false)),
                ("a.b/c", &Test::Compare(Op::Unequal, Value::Null)),
            ]
        );
        assert_eq!(parsed[1].text, "frames>=1e2");
        let parsed = parse(r#"has("cam \"a\"") and not has('b') and has"#).unwrap();
        let found: Vec<_> = (parsed.iter().map(|one| (one.column.as_str(), &one.test))).collect();
        assert_eq!(
            found,
            [
                ("cam \"a\"", &Test::Has(true)),
                ("b", &Test::Has(false)),
                ("has", &Test::Is(true)),
            ]
        );
    }

    #[test]
    fn an_invalid_filter_is_refused_with_the_position() {
        for (filter, says) in [
            ("", "ends too early: expected the name of a column"),
            ("success and", "ends too early"),
            (
                "success or done",
                "byte 8, `or done`: `or` is not supported",
            ),
            ("success done", "join conditions with `and`"),
            ("frames = 3", "use one of =="),
            ("frames == x", "put strings in quotes"),
            ("frames == 3x", "this is not a number"),
            ("frames == 1e999", "this is not a number"),
            ("task == \"lift", "closing quote"),
            ("has(cam)", "`has` takes the name of a stream in quotes"),
            ("has(\"cam\"", "`has` takes the name of a stream in quotes"),
            ("task in 3", "takes a list"),
            ("task in [3", "ends with `]`"),
            ("task < null", "null can only be compared"),
            ("task in [null]", "null can only be compared"),
            ("(success)", "expected the name of a column"),
        ] {
            let error = parse(filter).unwrap_err().to_string();
            assert!(error.contains(says), "{filter}: {error}");
        }
        let long = "a and ".repeat(300) + "a";
        assert!(parse(&long).unwrap_err().to_string().contains("conditions"));
        assert!(
            parse(&"a".repeat(70_000))
                .unwrap_err()
                .to_string()
                .contains("at most 65536")
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(filter in "[a-c\"'`\\\\ =<>!.0-9eé\\[\\],andorinot-]{0,40}") {
            let _ = parse(&filter);
        }
    }
}
