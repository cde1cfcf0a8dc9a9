//! Other people's files: walk (metadata), plan (mapping), frames (lazy).
//!
//! ```text
//!   demos.hdf5 ──walk──▶ groups, datasets, attributes ──plan──▶ episodes of streams ──read──▶ frames
//!                        (no values are read)                   (names, kinds, clocks)        (a range at a time)
//! ```
//!
//! [`open`] looks into a file or folder, recognises whose layout it is and gives a [`Source`]. Nothing in
//! a file is dropped in silence: an object becomes a stream, an attribute or a split, or it is listed as a
//! [`Defect`] with the reason.
//!
//! [`pack`] brings a source into a dataset, [`export()`] writes a dataset in one of [`EXPORTERS`].
//!
//! | layout | what it looks like | rate |
//! |---|---|---|
//! | robomimic, LIBERO | `/data/demo_<i>/{actions, obs/…}`, `/mask/<split>` | `env_args`' `control_freq`, or given |
//! | any other HDF5 | groups, files or rows of arrays of one length, with a mapping where needed | given, an attribute, or times |
//! | ACT, ALOHA | one file per episode: `/action`, `/observations/{qpos, images/…}` | given, `fps`, or 50 Hz |
//! | LeRobot v2.0, v2.1, v3.0 | a folder with `meta/info.json`, `data/…/*.parquet`, `videos/…/*.mp4` | `fps` of `info.json`, or given |
//! | RLDS | `features.json`, `<name>-<split>.tfrecord-00000-of-00001` | given, or an attribute of the episode |
//! | WebDataset | `*.tar` of `ep0_t3.front.jpg` or `ep0.front.3.jpg` | given, or in a `.json` of the episode |
//! | npz per demo | a tar of `demo_<i>.npz` and `env_args.json` | given, or `env_args`' `control_freq` |
//! | MDS | `index.json` and `shard.00000.mds`, a sample per step or per episode | given, or a column of the episode |
//! | MCAP | `*.mcap` of ROS 2, protobuf or JSON messages | none: every frame has its own time |
//! | diffusion_policy, UMI | zarr folder or zip: `data/<key>`, `meta/episode_ends` | given, or 60 Hz for UMI |
//! | plain folders | npz, npy, csv and images, with a mapping | given, or times of a field |
//!
//! Files are untrusted: a wrong byte is an error, never a panic, and memory follows what is asked for, not
//! what a file claims.

mod about;
mod clock;
mod defect;
mod error;
mod export;
mod files;
mod fit;
mod folder;
mod formats;
mod group;
mod hdf5;
mod image;
mod jpeg;
mod lerobot;
mod lineage;
mod mapping;
mod mcap;
mod mds;
mod npy;
mod open;
mod pack;
mod part;
mod plans;
mod png;
mod preview;
mod read_ahead;
mod recent;
mod rlds;
mod shift;
mod shuffle;
mod source;
mod stream_order;
mod suggest;
mod survey;
mod tar;
mod video;
mod webdataset;
mod zarr;
mod zip;

pub use defect::{Action, Defect, OnDefect};
pub use error::{ImportError, Result};
pub use export::{Cameras, EXPORTERS, ExportOptions, Exported, Exporter, export};
pub use formats::{FORMATS, Format};
pub use group::{Group, group_defects};
pub use open::{ImportOptions, open};
pub use pack::{PackOptions, Packed, Progress, pack};
pub use part::{NotOpened, Part};
pub use preview::{Preview, StreamPreview, preview};
pub use shift::is_shift;
pub use source::{
    ClockPlan, EpisodePlan, FrameBuf, Source, SourceFile, SourceInfo, StreamPlan, block_frames,
};
pub use suggest::suggest_mapping;
pub use survey::survey;
pub use video::{NewVideo, Pixels, Video, VideoError, VideoInfo, VideoShape, Videos};
