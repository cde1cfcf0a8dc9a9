//! The first images decoded by both, CPU and device: how much they differ, and how long each takes.

use std::time::Instant;

use super::memory::ImageMemory;
use super::place::{Waiting, check_pixels};
use super::{Comparison, Images};
use crate::error::{CudaError, Result};

/// So many images are compared.
const COMPARED: usize = 8;

impl Images {
    /// Compares images of one size that nvJPEG just decoded.
    ///
    /// They are decoded once more to where they are, which changes nothing: the first time includes what nvJPEG prepares.
    pub(super) fn compare(&mut self, group: &[Waiting<'_>]) -> Result<()> {
        let places = group.iter().map(|one| self.memory_of(one.image));
        let to = places.map(|place| place.map(ImageMemory::address));
        let to = to.collect::<Result<Vec<_>>>()?;
        let decode_s = self.report.decode_s;
        self.synchronize()?;
        let started = Instant::now();
        self.decode_to(group, &to)?;
        self.synchronize()?;
        let gpu_s = started.elapsed().as_secs_f64() / group.len() as f64;
        self.report.decode_s = decode_s;
        let mut compared = Comparison {
            images: 0,
            largest_difference: 0,
            cpu_s: 0.0,
            gpu_s,
        };
        let mut cpu_s = 0.0;
        for (one, &address) in group.iter().zip(&to).take(COMPARED) {
            let started = Instant::now();
            let pixels = one.image.decode();
            let pixels = pixels.map_err(|what| CudaError::Image { what })?;
            cpu_s += started.elapsed().as_secs_f64();
            let difference = self.difference(one, &pixels, address)?;
            compared.largest_difference = compared.largest_difference.max(difference);
            compared.images += 1;
        }
        compared.cpu_s = cpu_s / compared.images.max(1) as f64;
        self.report.compared = Some(compared);
        Ok(())
    }

    /// The largest difference between pixels and those on the device.
    fn difference(&mut self, one: &Waiting<'_>, pixels: &[u8], address: u64) -> Result<u8> {
        check_pixels(one.image, pixels)?;
        let mut found = vec![0; pixels.len()];
        let stream = self.stream.handle();
        self.device.copy_from(&mut found, address, stream)?;
        self.synchronize()?;
        let differences = found.iter().zip(pixels).map(|(a, b)| a.abs_diff(*b));
        Ok(differences.max().unwrap_or(0))
    }
}
