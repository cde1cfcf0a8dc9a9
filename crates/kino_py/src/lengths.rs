//! The order of whole episodes, batched by length.

use kino_sync::Mutex;

use kino_loader::{Cursor, EpisodeBatch, LengthMeasure, LengthReader, LengthSettings, LengthState};
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::arguments::{parse, to_mismatch};
use crate::errors::loader_to_py;
use crate::samples::Samples;

/// Epoch and episodes of a batch.
type PyBatch<'py> = (u64, Bound<'py, PyArray1<u32>>);

/// Epoch and batches done, a tuple in Python.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct Position(u64, u64);

/// Batches of whole episodes.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct LengthOrder {
    pub(crate) inner: kino_loader::LengthOrder,
    /// Holds the layout of the current epoch; Python threads take turns.
    reader: Mutex<LengthReader>,
}

#[pymethods]
impl LengthOrder {
    /// The order of whole-episode samples; the settings are JSON.
    #[new]
    fn new(
        py: Python<'_>,
        windows: PyRef<'_, Samples>,
        settings: &str,
        measure: &str,
    ) -> PyResult<Self> {
        let settings: LengthSettings = parse("the settings of the order", settings)?;
        let measure: LengthMeasure = parse("how long episodes are", measure)?;
        let windows = windows.inner.clone();
        let order = py.detach(|| kino_loader::LengthOrder::of(&windows, settings, measure));
        Ok(Self::from(order.map_err(loader_to_py)?))
    }

    /// The seed, which a forced restore may have changed.
    fn seed(&self) -> u64 {
        self.inner.settings().seed
    }

    /// The number of batches in an epoch.
    fn batches_in(&self, py: Python<'_>, epoch: u64) -> PyResult<u64> {
        py.detach(|| self.reader.lock().batches_in(epoch))
            .map_err(loader_to_py)
    }

    /// A rank's batches of the step at a position, and the position of the next step.
    fn step<'py>(
        &self,
        py: Python<'py>,
        position: Position,
        rank: u32,
        world_size: u32,
    ) -> PyResult<(Vec<PyBatch<'py>>, Position)> {
        let cursor = position.into();
        let step = py
            .detach(|| self.reader.lock().step(cursor))
            .map_err(loader_to_py)?;
        let batches = step.rank(rank, world_size).map_err(loader_to_py)?;
        let array = |batch: &EpisodeBatch| {
            let episodes = PyArray1::from_slice(py, &batch.episodes);
            (batch.epoch, episodes)
        };
        let batches = batches.iter().map(array).collect();
        Ok((batches, step.next.into()))
    }

    /// The state at a position, as JSON.
    fn state(&self, py: Python<'_>, position: Position) -> PyResult<String> {
        let cursor = position.into();
        let state = py
            .detach(|| self.reader.lock().state(cursor))
            .map_err(loader_to_py)?;
        Ok(state.to_json())
    }

    /// The order and the position of a state.
    fn restore(&self, py: Python<'_>, state: &str, force: bool) -> PyResult<(Self, Position)> {
        let mismatch = to_mismatch(force);
        let restored = py.detach(|| {
            LengthState::from_json(state).and_then(|state| self.inner.restore(&state, mismatch))
        });
        let restored = restored.map_err(loader_to_py)?;
        Ok((Self::from(restored.order), restored.cursor.into()))
    }
}

impl LengthOrder {
    fn from(inner: kino_loader::LengthOrder) -> Self {
        Self {
            reader: Mutex::new(inner.reader()),
            inner,
        }
    }
}

impl From<Position> for Cursor {
    fn from(Position(epoch, done): Position) -> Self {
        Self { epoch, done }
    }
}

impl From<Cursor> for Position {
    fn from(Cursor { epoch, done }: Cursor) -> Self {
        Self(epoch, done)
    }
}
