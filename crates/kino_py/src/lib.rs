//! The Python module `kinograph._core`: convert, release the GIL, call, convert errors.
//!
//! ```text
//! kinograph.Dataset ─▶ _core.Dataset   dataset.rs, columns of the episode table in table.rs
//! kinograph.Stream  ─▶ _core.Stream    stream.rs: frames are decoded straight into numpy's memory
//! kinograph.Samples ─▶ _core.Samples   samples.rs
//! kinograph.Order   ─▶ _core.Order     order.rs, lengths.rs
//! a loader, a report ─▶ _core.Loader   loader.rs
//! … on a GPU         ─▶ _core.CudaSender   cuda.rs, dlpack.rs
//! kinograph.Writer  ─▶ _core.Writer    writer.rs
//! kinograph.pack    ─▶ _core.pack      pack.rs
//! kinograph.repack  ─▶ _core.repack    repack.rs
//! kinograph.export  ─▶ _core.export    export.rs
//! kinograph.doctor  ─▶ _core.doctor    doctor.rs
//! kinograph.plan    ─▶ _core.plan      plan.rs
//! kinograph.Parity  ─▶ _core.Parity    parity.rs
//! kinograph.probe   ─▶ _core.probe     probe.rs; its network in network.rs
//! kinograph.gc      ─▶ _core.gc        gc.rs
//! a codec in Python ─▶ register_codec   foreign.rs
//! an error          ─▶ an exception    errors.rs
//! ```
//!
//! The public API is `python/kinograph`; this module is private. It contains no logic: indexing, stream kinds
//! and texts are handled in Python, storage in `kino_dataset`.

mod arguments;
mod batch;
mod command;
mod cuda;
mod cuda_images;
mod cuda_tensors;
mod dataset;
mod dlpack;
mod doctor;
mod errors;
mod export;
mod foreign;
mod gc;
mod idle;
mod jpeg;
mod lengths;
mod loader;
mod network;
mod order;
mod pack;
mod parity;
mod plan;
mod probe;
mod repack;
mod samples;
mod source;
mod stream;
mod table;
mod video;
mod writer;

/// Kinograph's core, written in Rust. Use the package `kinograph`; this module may change without notice.
#[pyo3::pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use crate::batch::BatchMemory;
    #[pymodule_export]
    use crate::command::{
        add_ffmpeg_folder, copy_mp4, escape, jpeg_shape, run_cli, to_url, verify,
    };
    #[pymodule_export]
    use crate::cuda::CudaSender;
    #[pymodule_export]
    use crate::cuda_tensors::FixedBatches;
    #[pymodule_export]
    use crate::dataset::{Dataset, Episode};
    #[pymodule_export]
    use crate::doctor::{doctor, doctor_foreign, doctor_html, doctor_text};
    #[pymodule_export]
    use crate::export::{commit_export, count_export_parts, export, export_parts_done};
    #[pymodule_export]
    use crate::foreign::{end_codecs, register_codec};
    #[pymodule_export]
    use crate::gc::gc;
    #[pymodule_export]
    use crate::idle::idle;
    #[pymodule_export]
    use crate::jpeg::CudaJpeg;
    #[pymodule_export]
    use crate::lengths::LengthOrder;
    #[pymodule_export]
    use crate::loader::{Loader, LoopTimes, loader_options, parse_bytes, report_html, show_bytes};
    #[pymodule_export]
    use crate::order::Order;
    #[pymodule_export]
    use crate::pack::{commit_parts, count_portions, pack, pack_part, portions_done};
    #[pymodule_export]
    use crate::parity::Parity;
    #[pymodule_export]
    use crate::plan::{
        pack_sample, plan, plan_html, plan_part, plan_text, plan_toml, plan_verify, plan_what_if,
        sample_episodes,
    };
    #[pymodule_export]
    use crate::probe::{probe, probe_html, probe_text, unmatched_rules};
    #[pymodule_export]
    use crate::repack::{count_repack_portions, repack, repack_part};
    #[pymodule_export]
    use crate::samples::{Samples, lerobot_request, robomimic_request};
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::writer::Writer;

    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::foreign::set_source();
        crate::network::set_source();
        Ok(())
    }

    /// The version of the wheel.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
