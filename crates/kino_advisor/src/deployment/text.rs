//! A check as text for a terminal, and as HTML for a notebook.

use std::fmt;

use super::check::{Deployment, Deviation, Severity};
use crate::html::HtmlReport;

impl Deployment {
    /// The verdict in a sentence.
    fn verdict(&self) -> String {
        let (name, version) = &self.dataset;
        let data = format!("the training frames of {name}, version {version}");
        match self.warnings.len() {
            0 => format!("Live frames look like {data}."),
            1 => format!("Live frames differ from {data}, in one way."),
            more => format!("Live frames differ from {data}, in {more} ways."),
        }
    }

    /// A fragment of HTML for a notebook.
    pub fn to_html(&self) -> String {
        let mut report = HtmlReport::new("Deployment");
        report = report.verdict(&self.verdict());
        if !self.warnings.is_empty() {
            let rows = self.warnings.iter().map(|one| {
                vec![
                    format!("{}: {}", one.stream, one.check),
                    one.severity.to_string(),
                    one.what.clone(),
                    one.action.clone(),
                ]
            });
            let rows: Vec<Vec<String>> = rows.collect();
            report = report.table(&["check", "severity", "what", "what to do"], &rows);
        }
        for note in &self.notes {
            report = report.text(note);
        }
        report.to_fragment()
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::High => "high",
            Self::Medium => "medium",
        })
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} · {} ({})\n  {}\n  why: {}\n  do:  {}",
            self.stream, self.check, self.severity, self.what, self.why, self.action
        )
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verdict())?;
        for warning in &self.warnings {
            write!(f, "\n{warning}")?;
        }
        for (key, stream) in &self.streams {
            let (frames, episodes) = stream.training;
            write!(
                f,
                "\n{key}: {} live frames, compared with {frames} of {episodes} training episodes",
                stream.frames
            )?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}
