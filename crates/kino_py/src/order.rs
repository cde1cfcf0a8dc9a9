//! The order of samples, by columns of numpy arrays.

use kino_sync::Mutex;

use kino_loader::{
    Operation, OrderReader, Ranks, SampleRef, Settings, ShuffleQuality, Source, State,
    available_memory,
};
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::arguments::{parse, to_mismatch};
use crate::errors::{invalid, loader_to_py, to_py};
use crate::loader::to_options;
use crate::samples::Samples;

/// Source, variant, epoch and index of samples.
type Columns<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
);

/// Samples, weight, weights of episodes, and (epoch, samples) of a curriculum.
type PySource<'py> = (
    PyRef<'py, Samples>,
    f64,
    Option<Vec<f32>>,
    Vec<(u64, PyRef<'py, Samples>)>,
);

/// The order of one source, or of a mixture.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct Order {
    pub(crate) inner: kino_loader::Order,
    /// Holds the layouts of the epochs in use; Python's threads take turns.
    reader: Mutex<OrderReader>,
}

#[pymethods]
impl Order {
    /// The order of sources under settings, which are JSON; their shuffle may be `{"auto": {"unit": …}}`.
    #[new]
    fn new(py: Python<'_>, sources: Vec<PySource<'_>>, settings: &str) -> PyResult<Self> {
        let is_mixture = sources.len() > 1;
        let (mut parts, mut samples) = (Vec::new(), Vec::new());
        for (place, (own, weight, episode_weights, curriculum)) in sources.into_iter().enumerate() {
            let mut source = Source::of(&own.inner).map_err(to_py)?;
            if is_mixture {
                // One dataset may be there twice, under two requests.
                source.name = format!("{place}: {}", source.name);
            }
            source.weights = episode_weights.map(Into::into);
            for (epoch, other) in curriculum {
                source
                    .add_variant(&own.inner, epoch, &other.inner)
                    .map_err(to_py)?;
            }
            parts.push((source, weight));
            samples.push(own.inner.clone());
        }
        let written: serde_json::Value = parse("the settings of the order", settings)?;
        let settings = py.detach(|| Settings::choose(&written, &parts, &samples));
        let settings = settings.map_err(loader_to_py)?;
        let order = kino_loader::Order::mixture(parts, settings);
        Ok(Self::from(order.map_err(loader_to_py)?))
    }

    /// The settings, as JSON; an automatic shuffle is resolved.
    fn settings(&self) -> PyResult<String> {
        serde_json::to_string(self.inner.settings()).map_err(|error| invalid(error.to_string()))
    }

    /// Equal ids mean equal orders.
    fn id(&self) -> String {
        self.inner.id()
    }

    /// The seed, which a forced restore may have changed.
    fn seed(&self) -> u64 {
        self.inner.settings().seed
    }

    /// Samples per epoch.
    fn epoch_samples(&self) -> u64 {
        self.inner.epoch_samples()
    }

    /// The epoch of a global index.
    fn epoch_of(&self, index: u64) -> u64 {
        self.inner.epoch_of(index)
    }

    /// First and end of the batches that start in an epoch.
    fn batches_of(&self, epoch: u64) -> PyResult<(u64, u64)> {
        let batches = self.inner.batches_of(epoch).map_err(loader_to_py)?;
        Ok((batches.start, batches.end))
    }

    /// First and end of the indices that a rank takes of a batch.
    fn rank_range(
        &self,
        batch: u64,
        rank: u32,
        world_size: u32,
        uneven: bool,
    ) -> PyResult<(u64, u64)> {
        let range = self
            .inner
            .rank_range(batch, rank, world_size, uneven.into())
            .map_err(loader_to_py)?;
        Ok((range.start, range.end))
    }

    /// The samples at global indices `start..stop`.
    fn samples<'py>(&self, py: Python<'py>, start: u64, stop: u64) -> PyResult<Columns<'py>> {
        let mut samples = Vec::new();
        py.detach(|| self.reader.lock().fill(start..stop, &mut samples))
            .map_err(loader_to_py)?;
        Ok(self.to_columns(py, &samples))
    }

    /// The sample that stands in for the one at `index`.
    fn substitute<'py>(&self, py: Python<'py>, index: u64, attempt: u64) -> PyResult<Columns<'py>> {
        let sample = self.reader.lock().substitute(index, attempt);
        Ok(self.to_columns(py, &[sample.map_err(loader_to_py)?]))
    }

    /// 64 random bits for an operation at a global index, the same on every rank.
    fn draw(&self, index: u64, operation: &str) -> u64 {
        let seed = self.inner.settings().seed;
        Operation::named(operation).at(seed, index).next_u64()
    }

    /// The state before a global index, as JSON.
    fn state(&self, py: Python<'_>, next_index: u64) -> PyResult<String> {
        let state = py
            .detach(|| self.reader.lock().state(next_index))
            .map_err(loader_to_py)?;
        Ok(state.to_json())
    }

    /// The order and the next index of a state.
    fn restore(&self, py: Python<'_>, state: &str, force: bool) -> PyResult<(Self, u64)> {
        let mismatch = to_mismatch(force);
        let restored = py.detach(|| {
            State::from_json(state).and_then(|state| self.inner.restore(&state, mismatch))
        });
        let restored = restored.map_err(loader_to_py)?;
        let order = restored.reader.order().clone();
        Ok((Self::from(order), restored.next_index))
    }

    /// What its shuffle gives and costs in a loader, and the memory of the host, as JSON; it is chosen if the options have none.
    fn quality(
        &self,
        py: Python<'_>,
        samples: Vec<Vec<PyRef<'_, Samples>>>,
        options: &str,
        local_ranks: u32,
    ) -> PyResult<String> {
        let options = to_options(options)?;
        let inner = |variants: Vec<PyRef<'_, Samples>>| {
            variants.iter().map(|one| one.inner.clone()).collect()
        };
        let samples: Vec<Vec<_>> = samples.into_iter().map(inner).collect();
        let found = py.detach(|| {
            let ranks = Ranks {
                world: options.world_size,
                local: local_ranks,
            };
            let with =
                |memory| ShuffleQuality::of(&self.inner, &samples, &options.images, memory, ranks);
            let memory = match options.memory {
                Some(memory) => memory.bytes(),
                None => with(0)?.default_memory(available_memory(), local_ranks),
            };
            Ok((with(memory)?, memory))
        });
        let (quality, memory) = found.map_err(loader_to_py)?;
        let mut json = serde_json::json!(quality);
        json["memory"] = memory.into();
        Ok(json.to_string())
    }
}

impl Order {
    fn from(inner: kino_loader::Order) -> Self {
        Self {
            reader: Mutex::new(inner.reader()),
            inner,
        }
    }

    fn to_columns<'py>(&self, py: Python<'py>, samples: &[SampleRef]) -> Columns<'py> {
        let column = |of: fn(&SampleRef) -> u32| PyArray1::from_iter(py, samples.iter().map(of));
        let windows = samples.iter().map(|sample| self.inner.sample_index(sample));
        (
            column(|sample| sample.source),
            column(|sample| sample.variant),
            PyArray1::from_iter(py, samples.iter().map(|sample| sample.epoch)),
            PyArray1::from_iter(py, windows),
        )
    }
}
