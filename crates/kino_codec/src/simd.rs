//! The best SIMD instructions of the CPU the code runs on, not of the one that compiled it.

/// Runs `work` as compiled for this CPU (with AVX2 if available).
///
/// The loops in `work` stay plain Rust that the compiler vectorises: mark the closure, and what it calls in its
/// hot loop, `#[inline(always)]`, or it is compiled for the baseline CPU. Dispatch costs a few nanoseconds,
/// so pass a row or an image, not a pixel.
pub(crate) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// The values from `start` on, zero-padded: the rest of a row as a whole block.
#[inline(always)]
pub(crate) fn part<const N: usize>(values: &[u8], start: usize) -> [u8; N] {
    let mut part = [0; N];
    let there = &values[start.min(values.len())..];
    let len = there.len().min(N);
    part[..len].copy_from_slice(&there[..len]);
    part
}
