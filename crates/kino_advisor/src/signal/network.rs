//! A network that images become features with, instead of random convolutions. The core has none: `kinograph/_probe_network.py` is
//! one, and `kino_py` makes it known when the Python module is loaded.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use kino_sync::Mutex;

use super::lesson::Lesson;
use crate::error::{AdvisorError, Result, invalid};

/// Where features of images come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Features {
    /// Random convolutions, without training.
    #[default]
    Random,
    /// A network that is trained on episodes that are set aside.
    Trained,
    /// A network where there is one, and random convolutions otherwise.
    Auto,
}

/// A network of a library that only the host has.
pub trait Network: fmt::Debug + Send {
    /// Takes what there is to learn from, and says how long that will take.
    fn prepare(&mut self, lesson: Lesson) -> Result<String>;

    /// Trains the features of one more set.
    fn learn(&mut self) -> Result<()>;

    /// The features of packed images of a camera: image by image, and of each image those of the first set, then of the
    /// second, and so on.
    fn encode(&mut self, stream: &str, frames: &[u8]) -> Result<Vec<f32>>;
}

/// The network of a probe, which all its cameras use.
pub(super) type SharedNetwork = Arc<Mutex<Box<dyn Network>>>;

/// Makes a network, or says which library is missing.
type NewNetwork = fn() -> Result<Box<dyn Network>>;

static NEW: OnceLock<NewNetwork> = OnceLock::new();

/// Sets what makes a network in this process; the first one stays.
pub fn set_network(new: NewNetwork) {
    NEW.get_or_init(|| new);
}

impl Features {
    /// What they are called in options, the default first.
    pub const NAMES: [&'static str; 3] = ["random", "trained", "auto"];

    /// Refuses a network where there is none.
    pub fn check(self) -> Result<()> {
        self.network().map(drop)
    }

    /// A new network, or `None` for random convolutions.
    pub(super) fn network(self) -> Result<Option<SharedNetwork>> {
        let new = match self {
            Self::Random => return Ok(None),
            Self::Trained | Self::Auto => NEW.get().map_or_else(|| Err(missing()), |new| new()),
        };
        match (self, new) {
            (Self::Auto, Err(AdvisorError::NoNetwork { .. })) => Ok(None),
            (_, new) => Ok(Some(Arc::new(Mutex::new(new?)))),
        }
    }
}

impl FromStr for Features {
    type Err = AdvisorError;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "random" => Ok(Self::Random),
            "trained" => Ok(Self::Trained),
            "auto" => Ok(Self::Auto),
            _ => Err(invalid(format!(
                "encoder is `{text}`; it must be 'random', 'trained' or 'auto'"
            ))),
        }
    }
}

fn missing() -> AdvisorError {
    AdvisorError::NoNetwork {
        source: "this program has no Python; run the `kinograph` of the Python package, or use the encoder 'random'"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_of_an_encoder_and_the_default_is_the_first() {
        for name in Features::NAMES {
            name.parse::<Features>().unwrap();
        }
        assert_eq!(
            Features::NAMES[0].parse::<Features>().unwrap(),
            Features::default()
        );
        let wrong = "deep".parse::<Features>().unwrap_err();
        assert!(wrong.to_string().contains("'random', 'trained' or 'auto'"));
    }

    #[test]
    fn without_a_network_auto_is_random_and_trained_is_refused() {
        assert!(Features::Auto.network().unwrap().is_none());
        assert!(Features::Random.network().unwrap().is_none());
        let refused = Features::Trained.check().unwrap_err();
        assert!(matches!(refused, AdvisorError::NoNetwork { .. }));
    }
}
