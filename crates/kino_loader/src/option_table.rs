//! Every option of a loader, with its default and what it means: the one place where they are described.
//!
//! ```text
//! OPTIONS ─┬─▶ `kinograph doctor --help`      flags are made from the rows
//!          ├─▶ kinograph.torch.Loader        a test compares signature, defaults and docstrings with the rows
//!          └─▶ docs/reference/loader.md      a test compares its table with the rows
//! ```
//!
//! The values themselves are the fields of [`LoaderOptions`](crate::LoaderOptions) (how a loader works) and
//! [`Settings`](crate::Settings) (which sample comes when); a test compares their names and defaults with the rows too.

use serde::Serialize;
use serde_json::{Value, json};

use crate::RandomJpeg;

/// One option.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OptionInfo {
    /// The keyword in Python and JSON. `images.size` is `size` of `images=kinograph.Images(...)`.
    pub name: &'static str,
    /// What values look like.
    pub form: Form,
    /// What holds if it is not given, for people.
    pub default: &'static str,
    /// What it does: one or two sentences.
    pub help: &'static str,
    /// Which struct holds it.
    pub part: Part,
}

/// What values look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A whole number.
    Count,
    /// `4GB`.
    Bytes,
    /// `224x224`.
    Size,
    /// `30-95`, or one number.
    Quality,
    /// Cores, or `50%`.
    Cpu,
    /// Yes if given.
    Flag,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Not to be given on a command line.
    Python,
}

/// Which struct holds an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// [`Settings`](crate::Settings): it changes which sample comes when.
    Order,
    /// [`LoaderOptions`](crate::LoaderOptions): it does not.
    Loader,
    /// The loaders of Python alone.
    Python,
}

/// All options, in the order in which they are documented.
pub const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "batch_size",
        form: Form::Count,
        default: "required",
        help: "Samples per batch, on each rank",
        part: Part::Order,
    },
    OptionInfo {
        name: "global_batch_size",
        form: Form::Python,
        default: "batch_size × world_size",
        help: "Samples per batch over all ranks; give it instead of batch_size to keep the same batches on any number of ranks",
        part: Part::Order,
    },
    OptionInfo {
        name: "shuffle",
        form: Form::Python,
        default: "True",
        help: "True mixes enough episodes for a good shuffle, \"global\" mixes all samples, False keeps the order of the dataset, and kinograph.Shuffle(...) says how many episodes to mix at a time",
        part: Part::Order,
    },
    OptionInfo {
        name: "seed",
        form: Form::Count,
        default: "0",
        help: "Seed of the order, of augmentation and of transforms",
        part: Part::Order,
    },
    OptionInfo {
        name: "last_batch",
        form: Form::Choice(&["short", "drop", "wrap", "repeat"]),
        default: "short",
        help: "What to do if an epoch does not end with a full batch: deliver a short one, drop it, fill it from the next epoch, or repeat samples",
        part: Part::Order,
    },
    OptionInfo {
        name: "drop_last",
        form: Form::Python,
        default: "None",
        help: "PyTorch's name: True is last_batch=\"drop\", False is last_batch=\"short\"",
        part: Part::Order,
    },
    OptionInfo {
        name: "epoch_size",
        form: Form::Python,
        default: "all samples",
        help: "Samples per epoch of a mixture",
        part: Part::Order,
    },
    OptionInfo {
        name: "images.size",
        form: Form::Size,
        default: "as stored",
        help: "Resize images to this height and width",
        part: Part::Loader,
    },
    OptionInfo {
        name: "images.resize",
        form: Form::Choice(&["exact", "fast"]),
        default: "exact",
        help: "How images are resized: from all stored pixels (exact), or JPEG decoded at a half, a quarter or an eighth of its size first, if that is enough (fast)",
        part: Part::Loader,
    },
    OptionInfo {
        name: "images.crop",
        form: Form::Size,
        default: "no crop",
        help: "Crop images to this height and width, after resizing",
        part: Part::Loader,
    },
    OptionInfo {
        name: "images.random_crop",
        form: Form::Flag,
        default: "False",
        help: "Crop at a random place instead of the centre",
        part: Part::Loader,
    },
    OptionInfo {
        name: "images.random_jpeg",
        form: Form::Quality,
        default: "no JPEG",
        help: "Compress the images of random samples (half of them by default) as JPEG, at a random quality from this range, and decode them again",
        part: Part::Loader,
    },
    OptionInfo {
        name: "images.random_resized_crop",
        form: Form::Python,
        default: "no crop",
        help: "Replace images by a part of random size and place, resized to the size of the image",
        part: Part::Loader,
    },
    OptionInfo {
        name: "images.random_flip",
        form: Form::Python,
        default: "no flip",
        help: "The probability that the images of a sample are mirrored; actions are not, see `KEY_is_flipped`",
        part: Part::Loader,
    },
    OptionInfo {
        name: "images.color_jitter",
        form: Form::Python,
        default: "no jitter",
        help: "Change brightness, contrast, saturation and hue of images at random",
        part: Part::Loader,
    },
    OptionInfo {
        name: "images.layout",
        form: Form::Choice(&["hwc", "chw"]),
        default: "hwc",
        help: "Channels last (hwc) or first (chw)",
        part: Part::Loader,
    },
    OptionInfo {
        name: "images.dtype",
        form: Form::Choice(&["uint8", "float32", "float16", "bfloat16"]),
        default: "uint8",
        help: "The dtype of images; floats are scaled to 0..1",
        part: Part::Loader,
    },
    OptionInfo {
        name: "normalize",
        form: Form::Python,
        default: "None",
        help: "Normalize by the dataset's statistics: \"mean_std\" or \"min_max\" for all floats, or a dict by key; the result is float32",
        part: Part::Loader,
    },
    OptionInfo {
        name: "dtype",
        form: Form::Choice(&["float32"]),
        default: "None",
        help: "The dtype of float64 and float16 vectors: \"float32\", or None to keep them as stored",
        part: Part::Loader,
    },
    OptionInfo {
        name: "transform",
        form: Form::Python,
        default: "None",
        help: "A function of a sample, a dict by key, that returns one; it may take a seeded generator as `rng`",
        part: Part::Python,
    },
    OptionInfo {
        name: "batch_transform",
        form: Form::Python,
        default: "None",
        help: "The same of a batch, after its samples are transformed and stacked",
        part: Part::Python,
    },
    OptionInfo {
        name: "transform_threads",
        form: Form::Python,
        default: "1",
        help: "Threads that run transforms",
        part: Part::Python,
    },
    OptionInfo {
        name: "fixed_addresses",
        form: Form::Python,
        default: "False",
        help: "Put every batch at the same addresses of the CUDA device, for CUDA graphs: a batch is valid until the next one is requested",
        part: Part::Python,
    },
    OptionInfo {
        name: "memory",
        form: Form::Bytes,
        default: "chosen",
        help: "Memory for decoded frames, of all ranks on this host together",
        part: Part::Loader,
    },
    OptionInfo {
        name: "threads",
        form: Form::Count,
        default: "all cores but one",
        help: "Threads that decode",
        part: Part::Loader,
    },
    OptionInfo {
        name: "cpu",
        form: Form::Cpu,
        default: "no limit",
        help: "CPU limit of all threads together, in cores (2.5) or as a percentage (\"50%\")",
        part: Part::Loader,
    },
    OptionInfo {
        name: "prefetch",
        form: Form::Count,
        default: "chosen while it runs",
        help: "Batches made ahead of the training loop",
        part: Part::Loader,
    },
    OptionInfo {
        name: "decode",
        form: Form::Python,
        default: "cpu",
        help: "What decodes JPEG images and video for a CUDA device: \"cpu\", \"gpu\" (nvJPEG, NVDEC), or \"auto\", the CPU and, if the training loop waits, the GPU too",
        part: Part::Loader,
    },
    OptionInfo {
        name: "on_error",
        form: Form::Choice(&["raise", "skip"]),
        default: "raise",
        help: "Raise if a sample cannot be read, or skip it and deliver another one in its place",
        part: Part::Loader,
    },
    OptionInfo {
        name: "rank",
        form: Form::Python,
        default: "torch.distributed's, else 0",
        help: "This rank",
        part: Part::Loader,
    },
    OptionInfo {
        name: "world_size",
        form: Form::Python,
        default: "torch.distributed's, else 1",
        help: "Number of ranks",
        part: Part::Loader,
    },
    OptionInfo {
        name: "uneven",
        form: Form::Python,
        default: "False",
        help: "Allow a number of ranks that does not divide the global batch; slices then differ by one sample",
        part: Part::Loader,
    },
];

impl OptionInfo {
    /// The flag on a command line, without its dashes: `images.size` is `image-size`.
    pub fn flag(&self) -> String {
        self.name.replace("images.", "image-").replace('_', "-")
    }

    /// The value that text on a command line stands for, as JSON.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        match self.form {
            Form::Count => {
                let count: Result<u64, _> = text.parse();
                count
                    .map(Value::from)
                    .map_err(|_| format!("`{text}` is not a whole number"))
            }
            Form::Size => text
                .split_once('x')
                .and_then(|(height, width)| {
                    Some((height.parse::<u32>().ok()?, width.parse::<u32>().ok()?))
                })
                .map(|sides| json!(sides))
                .ok_or_else(|| {
                    format!("`{text}` is not a size; write height and width as in 224x224")
                }),
            Form::Quality => {
                let (lowest, highest) = text.split_once('-').unwrap_or((text, text));
                match (lowest.parse::<u8>(), highest.parse::<u8>()) {
                    (Ok(lowest), Ok(highest)) => Ok(json!(RandomJpeg::of_quality(lowest, highest))),
                    _ => Err(format!(
                        "`{text}` is not a JPEG quality; write the lowest and the highest as in 30-95"
                    )),
                }
            }
            Form::Flag => Ok(Value::Bool(true)),
            Form::Cpu => match text.parse::<f64>() {
                Ok(cores) => Ok(json!(cores)),
                Err(_) => Ok(Value::from(text)),
            },
            Form::Choice(names) if !names.contains(&text) => {
                Err(format!("`{text}`; use one of {}", names.join(", ")))
            }
            Form::Bytes | Form::Choice(_) | Form::Python => Ok(Value::from(text)),
        }
    }
}

/// Puts a value at its place in the JSON of [`LoaderOptions`](crate::LoaderOptions) or [`Settings`](crate::Settings).
pub fn set_option(options: &mut Value, name: &str, value: Value) {
    match name.split_once('.') {
        Some((group, name)) => options[group][name] = value,
        None => options[name] = value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoaderOptions;

    /// The names of all fields, with groups as prefixes.
    fn fields(prefix: &str, value: &Value, names: &mut Vec<String>) {
        for (name, value) in value.as_object().unwrap() {
            match value {
                Value::Object(_) => fields(&format!("{prefix}{name}."), value, names),
                _ => names.push(format!("{prefix}{name}")),
            }
        }
    }

    #[test]
    fn every_field_of_the_options_has_a_row_and_every_row_a_field() {
        let mut names = Vec::new();
        fields("", &json!(LoaderOptions::default()), &mut names);
        // Python computes the scales of `normalize` from the dataset's statistics.
        let mut names: Vec<_> = names
            .iter()
            .map(|name| name.replace("scales", "normalize"))
            .collect();
        names.sort();
        let rows = OPTIONS.iter().filter(|row| row.part == Part::Loader);
        let mut rows: Vec<_> = rows.map(|row| row.name.to_owned()).collect();
        rows.sort();
        assert_eq!(names, rows);
    }

    #[test]
    fn written_values_become_options() {
        let mut written = json!(LoaderOptions::default());
        for (name, text) in [
            ("images.size", "224x300"),
            ("images.dtype", "bfloat16"),
            ("images.layout", "chw"),
            ("images.random_jpeg", "30-95"),
            ("memory", "512MB"),
            ("threads", "3"),
            ("cpu", "50%"),
            ("on_error", "skip"),
        ] {
            let row = OPTIONS.iter().find(|row| row.name == name).unwrap();
            set_option(&mut written, name, row.parse(text).unwrap());
        }
        let options: LoaderOptions = serde_json::from_value(written).unwrap();
        assert_eq!(options.memory_bytes(), 512_000_000);
        assert_eq!(options.decode_threads(), 3);
        assert_eq!(options.cpu, Some(crate::CpuShare::Fraction(0.5)));
        let size = crate::Size {
            height: 224,
            width: 300,
        };
        assert_eq!(options.images.size, crate::PerKey::All(size));
        assert_eq!(options.images.dtype, crate::ImageDtype::Bf16);
        let jpeg = RandomJpeg::of_quality(30, 95);
        assert_eq!(options.images.random_jpeg, crate::PerKey::All(jpeg));
        assert_eq!(options.on_error, crate::OnError::Skip);
    }

    #[test]
    fn defaults_of_choices_are_those_of_the_structs() {
        let options = json!(LoaderOptions::default());
        for row in OPTIONS.iter().filter(|row| row.part == Part::Loader) {
            let Form::Choice(names) = row.form else {
                continue;
            };
            if row.default == "None" {
                continue;
            }
            assert!(names.contains(&row.default), "{}", row.name);
            let value = match row.name.split_once('.') {
                Some((group, name)) => &options[group][name],
                None => &options[row.name],
            };
            assert_eq!(value, row.default, "{}", row.name);
        }
    }

    #[test]
    fn wrong_values_are_refused_with_right_ones() {
        let parse = |name: &str, text: &str| {
            let row = OPTIONS.iter().find(|row| row.name == name).unwrap();
            row.parse(text).unwrap_err()
        };
        assert!(parse("images.size", "224").contains("224x224"));
        assert!(parse("images.random_jpeg", "bad-95").contains("30-95"));
        assert!(parse("images.dtype", "int8").contains("float16"));
        assert!(parse("threads", "many").contains("whole number"));
    }
}
