//! The best vector instructions of the machine that runs, not of the one that compiled.

/// Runs `work` as compiled for this CPU (AVX2 where it has it).
///
/// The loops in `work` stay plain Rust that the compiler vectorises: mark the closure, and what it calls in its
/// hot loop, `#[inline(always)]`, or it is compiled for the oldest CPU. Choosing costs a few nanoseconds,
/// so give it a row or an image, not a pixel.
pub(crate) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}
