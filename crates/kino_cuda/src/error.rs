//! What can go wrong with a device.

/// The result of this crate's functions.
pub type Result<T, E = CudaError> = std::result::Result<T, E>;

/// An error of the CUDA driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no driver that can be used.
    #[error(
        "cannot load the CUDA driver: {what}; install NVIDIA's driver, set KINOGRAPH_CUDA_LIBRARY to its libcuda.so.1, or leave \
         out `device`"
    )]
    NoDriver {
        /// What was tried.
        what: String,
    },
    /// The device has no memory left for a batch.
    #[error(
        "no device memory for a batch of {bytes} bytes: {live} batches are on the device, {held} of them still referenced; \
         keep fewer batches, use a smaller batch size, lower `memory=` if the GPU decodes images, which stay there, or free what \
         torch keeps for reuse with torch.cuda.empty_cache()"
    )]
    OutOfMemory {
        /// Bytes of the batch.
        bytes: usize,
        /// Slots of this loader on the device.
        live: usize,
        /// How many of them the user references.
        held: usize,
    },
    /// There is no nvJPEG that can be used.
    #[error(
        "cannot load nvJPEG: {what}; install it (`pip install nvidia-nvjpeg`, for CUDA 12 nvidia-nvjpeg-cu12, or the CUDA \
         toolkit), set KINOGRAPH_NVJPEG_LIBRARY to its libnvjpeg.so, or decode on the CPU"
    )]
    NoJpeg {
        /// What was tried.
        what: String,
    },
    /// A call of nvJPEG failed.
    #[error(
        "{call} failed: {name}; decode on the CPU, which names the damaged frame if there is one"
    )]
    Jpeg {
        /// The function of nvJPEG.
        call: &'static str,
        /// The name of the error.
        name: String,
    },
    /// A frame has not the size of its place.
    #[error("cannot decode JPEG on the device: {what}; run `kinograph verify` on the dataset")]
    JpegSize {
        /// What does not fit.
        what: String,
    },
    /// There is no NVDEC that can be used.
    #[error(
        "cannot load NVDEC: {what}; libnvcuvid is part of NVIDIA's driver (in a container: NVIDIA_DRIVER_CAPABILITIES must have \
         `video`), KINOGRAPH_NVCUVID_LIBRARY names another; or decode on the CPU"
    )]
    NoVideo {
        /// What was tried.
        what: String,
    },
    /// An image cannot be put on the device.
    #[error("cannot put an image on the device: {what}")]
    Image {
        /// What is wrong with it.
        what: String,
    },
    /// The device has no memory left for images.
    #[error(
        "no device memory for {bytes} bytes of images: {held} bytes hold images that the loader keeps; lower `memory=`, use a \
         smaller batch size, or free what torch keeps for reuse with torch.cuda.empty_cache()"
    )]
    ImageMemory {
        /// Bytes that were asked for.
        bytes: usize,
        /// Bytes that images have.
        held: usize,
    },
    /// A call of the driver failed.
    #[error("{call} failed: {name} ({what}); {advice}")]
    Call {
        /// The function of the driver.
        call: &'static str,
        /// The name of the error.
        name: String,
        /// The driver's description.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// The thread that copies could not be started, or panicked.
    #[error("the thread that copies batches to the device {what}")]
    Thread {
        /// What happened to it.
        what: String,
    },
}
