//! How the probe measures what a policy would lose: the options that `kinograph probe` and `kinograph plan` share.

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use kino_advisor::{Chosen, Features, ProbeOptions};

/// What a policy sees and predicts, and how well that is measured.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProbeArgs {
    /// What a policy sees: a stream, or some elements of it, such as `state[0,1]`. May be repeated [default: all images and
    /// vectors but the targets; those that --window requests]
    #[arg(id = "probe_input", long = "input", value_name = "STREAM", value_parser = chosen)]
    inputs: Vec<Chosen>,
    /// What it has to predict, in the same form [default: the actions, and streams named after simulator state]
    #[arg(id = "probe_target", long = "target", value_name = "STREAM", value_parser = chosen)]
    targets: Vec<Chosen>,
    /// Frames of an action chunk
    #[arg(long, value_name = "N", default_value_t = 16)]
    chunk: usize,
    /// What turns images into features: random convolutions, a network that learns from episodes which are set aside (it needs
    /// the Python package and torch), or auto, that network where it is installed
    #[arg(long, value_name = "NAME", default_value = Features::NAMES[0], value_parser = PossibleValuesParser::new(Features::NAMES))]
    encoder: String,
    /// Features of all images together
    #[arg(long, value_name = "N", default_value_t = 1024)]
    features: usize,
    /// Sets of features
    #[arg(long, value_name = "N", default_value_t = 3)]
    seeds: usize,
    /// Parts of the episodes, each of which is held out once
    #[arg(long, value_name = "N", default_value_t = 10)]
    folds: usize,
    /// The fraction by which the error must be below that of simpler predictors before a verdict is given
    #[arg(long, value_name = "FRACTION", default_value_t = 0.02)]
    margin: f64,
}

impl ProbeArgs {
    /// What the probe is asked, and how many seconds it may take; an error if nothing here can train what it asks for.
    pub(crate) fn options(&self, seconds: f64) -> Result<ProbeOptions> {
        let encoder: Features = self.encoder.parse()?;
        encoder
            .check()
            .with_context(|| format!("--encoder {}", self.encoder))?;
        Ok(ProbeOptions {
            inputs: self.inputs.clone(),
            targets: self.targets.clone(),
            chunk: self.chunk,
            encoder,
            features: self.features,
            seeds: self.seeds,
            folds: self.folds,
            seconds,
            margin: self.margin,
            ..ProbeOptions::default()
        })
    }

    /// The streams that every sampled episode needs; none are all.
    pub(crate) fn requested(&self) -> Vec<String> {
        if self.inputs.is_empty() || self.targets.is_empty() {
            return Vec::new();
        }
        let chosen = self.inputs.iter().chain(&self.targets);
        chosen.map(|one| one.stream.clone()).collect()
    }
}

/// A stream, or `stream[0,1]`.
fn chosen(text: &str) -> Result<Chosen, String> {
    let wrong = || format!("`{text}` is not a stream, nor elements of one such as `state[0,1]`");
    let Some((stream, rest)) = text.split_once('[') else {
        return Ok(Chosen {
            stream: text.to_owned(),
            elements: None,
        });
    };
    let inside = rest.strip_suffix(']').ok_or_else(wrong)?;
    let elements = inside.split(',').map(|one| one.trim().parse());
    let elements = elements
        .collect::<Result<Vec<usize>, _>>()
        .map_err(|_| wrong())?;
    Ok(Chosen {
        stream: stream.to_owned(),
        elements: Some(elements),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_elements_are_read_as_they_are_written() {
        let elements = chosen("obs/state[0, 2]").unwrap();
        assert_eq!(elements.stream, "obs/state");
        assert_eq!(elements.elements, Some(vec![0, 2]));
        assert_eq!(chosen("img").unwrap().elements, None);
        assert!(chosen("img[0").is_err() && chosen("img[a]").is_err());
    }
}
