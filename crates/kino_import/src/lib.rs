//! Importers and exporters: walk (metadata), spec (mapping to streams), read (lazy frames).
//!
//! ```text
//!   demos.hdf5 ──walk──▶ groups, datasets, attributes ──spec──▶ episodes of streams ──read──▶ frames
//!                        (no values are read)                   (names, kinds, clocks)        (a range at a time)
//! ```
//!
//! [`open`] inspects a file or folder, recognises its layout and returns a [`Source`]. Nothing in a file is dropped
//! silently: an object becomes a stream, an attribute or a split, or it is listed as a [`Defect`] with the reason.
//!
//! [`pack`] turns a source into a dataset, [`export()`] writes a dataset in one of the [`EXPORTERS`].
//!
//! | layout | what it looks like | rate |
//! |---|---|---|
//! | robomimic, LIBERO | `/data/demo_<i>/{actions, obs/…}`, `/mask/<split>` | `env_args`' `control_freq`, or `--rate` |
//! | any other HDF5 | groups, files or rows of arrays of one length, with a mapping where needed | `--rate`, an attribute, or timestamps |
//! | ACT, ALOHA | one file per episode: `/action`, `/observations/{qpos, images/…}` | `--rate`, `fps`, or 50 Hz |
//! | LeRobot v2.0, v2.1, v3.0 | a folder with `meta/info.json`, `data/…/*.parquet`, `videos/…/*.mp4` | `fps` of `info.json`, or `--rate` |
//! | RLDS | `features.json`, `<name>-<split>.tfrecord-00000-of-00001` | `--rate`, or an attribute of the episode |
//! | WebDataset | `*.tar` of `ep0_t3.front.jpg` or `ep0.front.3.jpg` | `--rate`, or in a `.json` of the episode |
//! | npz per demo | a tar of `demo_<i>.npz` and `env_args.json` | `--rate`, or `env_args`' `control_freq` |
//! | MDS | `index.json` and `shard.00000.mds`, a sample per step or per episode | `--rate`, or a column of the episode |
//! | MCAP | `*.mcap` of ROS 2, protobuf or JSON messages | none: every frame has its own timestamp |
//! | diffusion_policy, UMI | zarr folder or zip: `data/<key>`, `meta/episode_ends` | `--rate`, or 60 Hz for UMI |
//! | plain folders | npz, npy, csv and images, with a mapping | `--rate`, or timestamps in a field |
//!
//! Files are untrusted: a wrong byte is an error, never a panic, and memory is bounded by what is requested, not by
//! what a file claims.

mod about;
mod bitstream;
mod clock;
mod commit_parts;
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
mod link;
mod mapping;
mod mcap;
mod mds;
mod mp4;
mod needless_loss;
mod npy;
mod open;
mod pack;
mod pack_parts;
mod packets;
mod packing;
mod part;
mod png;
mod portions;
mod preview;
mod progress;
mod read_ahead;
mod recent;
mod reencode;
mod rlds;
mod sample;
mod settle;
mod shift;
mod shuffle;
mod source;
mod source_file;
mod specs;
mod stream_order;
mod suggest;
mod survey;
mod tar;
mod values;
mod variants;
mod video;
mod webdataset;
mod whole_numbers;
mod zarr;
mod zip;

pub use commit_parts::commit_parts;
pub use defect::{Action, Defect, OnDefect};
pub use error::{ImportError, Result};
pub use export::{
    Cameras, EXPORTERS, ExportOptions, ExportProgress, Exported, commit_export, count_export_parts,
    export, export_part, export_progress,
};
pub use formats::FORMATS;
pub use group::group_defects;
pub use kino_dataset::Part;
pub use link::{Extent, LinkOptions, PageExtent, link_root};
pub use mp4::{
    Mp4Chroma, Mp4Codec, Mp4Color, Mp4Header, Mp4Orientation, Mp4Packet, Mp4Pixels, Mp4Sample,
    Mp4Track, Mp4Writer, copy_mp4, read_mp4,
};
pub use open::{ImportOptions, open};
pub use pack::{PackOptions, Packed, pack};
pub use pack_parts::{PackedPart, count_portions, pack_part};
pub use preview::{Preview, StreamPreview, preview};
pub use progress::Progress;
pub use sample::{SampleOptions, Sampled, pack_sample};
pub use shift::is_shift;
pub use source::{
    ClockSpec, EpisodeSpec, FrameBuf, MAX_IMPORTED_FRAME_BYTES, ReadFrames, Source, SourceInfo,
    StreamSpec, Wanted, block_frames,
};
pub use suggest::suggest_mapping;
pub use survey::survey;
pub use video::{NewVideo, Pixels, Video, VideoError, VideoInfo, VideoShape, Videos};
