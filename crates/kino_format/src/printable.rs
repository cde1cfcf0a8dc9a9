//! Safe display of text from files: characters that could move the cursor, set colors or change the text direction
//! are escaped.
//!
//! ```text
//! controls       C0, DEL, C1                              ESC ] 0 ; … BEL sets a window's title
//! directions     U+061C, U+200E/F, U+202A–E, U+2066–9     "gpj.exe" can be displayed as "exe.jpg"
//! line breaks    U+2028, U+2029                           a name can forge a line of output
//! ```

use std::borrow::Cow;

/// Whether a character is an instruction to the terminal rather than visible text.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text for display, with any number of lines: `\u{1b}` instead of each such character except line feeds and tabs.
pub fn escape(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unprintable(c) && c != '\n' && c != '\t')
}

/// Text that stays on its line and in its column: line feeds and tabs are escaped too.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unprintable)
}

fn escaped(text: &str, is_odd: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_odd) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' if is_odd(c) => shown.push_str("\\n"),
            '\t' if is_odd(c) => shown.push_str("\\t"),
            c if is_odd(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_terminal_control_character_is_escaped() {
        for code in (0..0x20)
            .chain(0x7f..0xa0)
            .chain([0x61c, 0x200e, 0x200f, 0x2028, 0x2029])
        {
            let c = char::from_u32(code).unwrap();
            assert!(is_unprintable(c), "{code:x}");
            assert!(!escape_line(&format!("a{c}b")).contains(c), "{code:x}");
        }
        for code in (0x202a..=0x202e).chain(0x2066..=0x2069) {
            assert!(is_unprintable(char::from_u32(code).unwrap()), "{code:x}");
        }
        assert_eq!(
            escape("\x1b]0;x\x07\r\n\tb\u{9b}31m"),
            "\\u{1b}]0;x\\u{7}\\u{d}\n\tb\\u{9b}31m"
        );
        assert_eq!(escape_line("a\nb\tc\u{202e}"), "a\\nb\\tc\\u{202e}");
    }

    #[test]
    fn other_text_is_unchanged() {
        for text in [
            "",
            "obs/cam_0 größe 日本 — ✓ 👩‍🔬 \u{a0}é",
            "שלום مرحبا",
            "C:\\new\\table",
        ] {
            assert!(
                matches!(escape_line(text), Cow::Borrowed(same) if same == text),
                "{text}"
            );
        }
    }
}
