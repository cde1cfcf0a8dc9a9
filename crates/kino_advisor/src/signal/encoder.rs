//! How images become features.
//!
//! ```text
//!            ┌─▶ Random    convolution.rs ─┐
//! frames ────┼─▶ Trained   network.rs ─────┴─▶ rows of features
//!            └─▶ Kept      the frames themselves, for lesson.rs
//! ```

use super::convolution::{Convolution, Scratch};
use super::network::SharedNetwork;
use super::ridge::Rows;
use super::threads::map;
use crate::error::{Result, invalid};

/// What turns the images of one camera into features.
#[derive(Debug)]
pub(super) enum Encoder {
    Random(Convolution),
    /// Bytes of an image, and its features in each set.
    Trained {
        frame_len: usize,
        width: usize,
        network: SharedNetwork,
    },
    /// Packed images.
    Kept(Vec<u8>),
}

impl Encoder {
    /// Features of an image, per set.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Random(convolution) => convolution.width(),
            Self::Trained { width, .. } => *width,
            Self::Kept(_) => 0,
        }
    }

    /// Every how many pixels a patch is looked at, if patches are.
    pub(super) fn stride(&self) -> Option<usize> {
        match self {
            Self::Random(convolution) => Some(convolution.stride()),
            Self::Trained { .. } | Self::Kept(_) => None,
        }
    }

    /// Adds the features of packed images as rows.
    pub(super) fn add(&mut self, stream: &str, frames: &[u8], table: &mut Rows) -> Result<()> {
        match self {
            Self::Random(convolution) => {
                let frames: Vec<&[u8]> = frames
                    .chunks_exact(convolution.frame_len().max(1))
                    .collect();
                let rows = map(frames.len(), |idx| {
                    let mut row = Vec::new();
                    convolution.extract(frames[idx], &mut Scratch::default(), &mut row);
                    row
                });
                rows.iter()
                    .for_each(|row| table.values.extend_from_slice(row));
            }
            Self::Trained {
                frame_len, network, ..
            } => {
                let found = network.lock().encode(stream, frames)?;
                let expected = frames.len() / (*frame_len).max(1) * table.cols;
                if found.len() != expected || !found.iter().all(|value| value.is_finite()) {
                    return Err(invalid(format!(
                        "stream `{stream}`: the network must give {expected} finite features for these images, and gave {}",
                        found.len()
                    )));
                }
                table.values.extend(found);
            }
            Self::Kept(kept) => kept.extend_from_slice(frames),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kino_sync::Mutex;

    use super::super::lesson::Lesson;
    use super::super::network::Network;
    use super::*;

    #[derive(Debug)]
    struct Mean(usize);

    impl Network for Mean {
        fn prepare(&mut self, _lesson: Lesson) -> Result<String> {
            Ok(String::new())
        }

        fn learn(&mut self) -> Result<()> {
            Ok(())
        }

        fn encode(&mut self, _stream: &str, frames: &[u8]) -> Result<Vec<f32>> {
            let means = frames
                .chunks_exact(self.0)
                .map(|frame| frame.iter().map(|value| f32::from(*value)).sum());
            Ok(means.collect())
        }
    }

    #[test]
    fn features_of_a_network_are_rows_unless_some_are_missing() {
        let encoder = |len| Encoder::Trained {
            frame_len: 2,
            width: 1,
            network: Arc::new(Mutex::new(Box::new(Mean(len)))),
        };
        let mut table = Rows {
            cols: 1,
            values: Vec::new(),
        };
        encoder(2).add("cam", &[1, 2, 3, 4], &mut table).unwrap();
        assert_eq!(table.values, [3.0, 7.0]);
        let error = encoder(4).add("cam", &[1, 2, 3, 4], &mut table);
        assert!(error.unwrap_err().to_string().contains("must give 2"));
    }
}
