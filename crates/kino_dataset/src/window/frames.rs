//! Which frames one sample is made of: numbers only, no frame is read.
//!
//! ```text
//! window "cam"   frames [7, 7, 8, 9]      state [Before, Real, Real, Real]
//! window "pose"  frames [41, 42]          state [Real, Real]      other [(42, 0.25), (42, 0.0)]
//! ```

/// In place of a frame's number: no frame, zeros instead.
pub const NO_FRAME: u32 = u32::MAX;

/// Why a frame stands where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    /// It is the frame asked for.
    Real,
    /// The moment lies before the stream's first frame.
    Before,
    /// The moment lies after the last.
    After,
    /// The nearest frame is too far away.
    Stale,
}

/// The frames of one window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WindowFrames {
    /// One frame per moment, or [`NO_FRAME`].
    pub frames: Vec<u32>,
    /// For `linear` and `slerp`: the frame blended in, and its weight; weight 0 where the frame is used alone.
    /// Empty for other windows.
    pub other: Vec<(u32, f64)>,
    /// Why each frame stands there.
    pub state: Vec<Out>,
}

/// The frames of one sample. Kept between calls, its buffers are used again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SampleFrames {
    /// The episode's row in the table.
    pub row: usize,
    /// Which anchor of the episode, counted before any is skipped or dropped.
    pub anchor: u32,
    /// The index of the sample among all samples of the request.
    pub sample: u64,
    /// Its time.
    pub time_ns: i64,
    /// One per window of the request, in its order.
    pub windows: Vec<WindowFrames>,
}

impl WindowFrames {
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.other.clear();
        self.state.clear();
    }

    pub(super) fn push(&mut self, frame: u32, state: Out) {
        self.frames.push(frame);
        self.state.push(state);
    }
}
