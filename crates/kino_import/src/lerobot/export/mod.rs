//! Writing LeRobot datasets v2.1 and v3.0; `lerobot/meta.rs` shows the folders.
//!
//! ```text
//! layout.rs   which stream is which column, what cannot be stored
//! columns.rs  the columns, as info.json and the footer of a data file describe them
//! tasks.rs    the numbers of tasks        said.rs   the attributes of an episode
//! rows.rs     the frames of an episode into a row group, and statistics of them
//! remux.rs    packets of video into files      v21.rs, v3.rs, episodes.rs, info.rs   the files of each version
//! table.rs    parquet files               stats.rs  statistics
//! ```
//!
//! | here | there |
//! |---|---|
//! | episode | the next `episode_index` |
//! | stream `actions`, `obs/x`, `observations/x` | column `action`, `observation.x`, images `observation.images.x` |
//! | any other stream | column of its name, with `.` for `/` |
//! | 8-bit images, 16-bit depth | PNG files inside the table; JPEG files if the dataset stores them |
//! | video | video files with the same packets |
//! | task, text stream `task` | `task_index` of each frame |
//! | splits that are one range of episodes | `splits` of `info.json` |

mod columns;
mod episodes;
mod info;
mod layout;
mod remux;
mod rows;
mod said;
mod stats;
mod table;
mod tasks;
pub(crate) mod v21;
pub(crate) mod v3;

pub(crate) use layout::prepare;
