//! The best vector instructions of the machine that runs, not of the one that compiled.

/// Runs `work` as compiled for this processor (AVX2 where it has it).
///
/// The loops in `work` stay plain Rust that the compiler vectorises: mark the closure, and what it calls in its
/// hot loop, `#[inline(always)]`, or it is compiled for the oldest processor. Choosing costs a few nanoseconds,
/// so give it a row or a picture, not a pixel.
pub(crate) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}
