/* The kernels of images: CUDA C, and plain C for the fake driver of the tests, one function per pixel.
 *
 *     resize   one pass, rows or columns, of images that are one behind the other: uint8 [height, width, 3] to an address each
 *     gather   crops of images that are anywhere, one behind the other in a batch: HWC or CHW, uint8 or by a table of numbers
 *     nv12     frames of video to RGB: luma, and half as many rows of U and V in turns, to uint8 [height, width, 3]
 *
 * `scripts/ptx.py` makes images.ptx of it. The jobs are those of images/jobs.rs, which checks every range before a launch.
 */
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

/* Images of a launch. */
#define IMAGES 128
#define CHANNELS 3

#ifdef __CUDACC_RTC__
#define PER_PIXEL static __device__ __forceinline__
#else
#define PER_PIXEL static inline
#endif

typedef struct Resize {
    u64 from;         /* the first image */
    u64 from_image;   /* bytes from one image to the next */
    u64 along_step;   /* bytes from one pixel to the next in the direction that is resized */
    u64 across_step;  /* bytes in the other direction */
    u64 starts;       /* u32 for each pixel that comes out along the direction */
    u64 coefficients; /* i16 [pixel][taps] */
    u32 taps, precision;
    u32 last;         /* the last pixel that there is along the direction: coefficients behind it are 0 */
    u32 is_horizontal;
    u32 height, width;
    u64 to[IMAGES];
} Resize;

typedef struct Gather {
    u64 to;
    u64 table;        /* numbers [256][3]; 0: uint8 as it is */
    u32 height, width;
    u32 is_chw;
    u32 bytes;        /* of a number: 1, 2, 4 */
    struct { u64 from, row; } images[IMAGES]; /* the crop's first pixel, 0: zeros; bytes of a row of the image */
} Gather;

typedef struct Nv12 {
    u64 pitch;        /* bytes from one row to the next */
    u64 chroma;       /* bytes from luma to U and V */
    u32 height, width;
    int luma, black, red_v, green_u, green_v, blue_u; /* spec/codecs/video.md */
    struct { u64 from, to; } images[IMAGES];
} Nv12;

PER_PIXEL void resize_pixel(const Resize *job, u32 image, u32 pixel) {
    u32 y = pixel / job->width, x = pixel % job->width;
    u64 along = job->is_horizontal ? x : y, across = job->is_horizontal ? y : x;
    const u8 *from = (const u8 *)job->from + image * job->from_image + across * job->across_step;
    const short *coefficients = (const short *)job->coefficients + along * job->taps;
    u32 start = ((const u32 *)job->starts)[along];
    int half = 1 << (job->precision - 1);
    int sums[CHANNELS] = {half, half, half};
    for (u32 tap = 0; tap < job->taps; tap++) {
        u64 at = (u64)start + tap;
        const u8 *in = from + (at < job->last ? at : job->last) * job->along_step;
        int coefficient = coefficients[tap];
        for (int channel = 0; channel < CHANNELS; channel++) sums[channel] += coefficient * in[channel];
    }
    u8 *to = (u8 *)job->to[image] + (u64)pixel * CHANNELS;
    for (int channel = 0; channel < CHANNELS; channel++) {
        int value = sums[channel] >> job->precision;
        to[channel] = (u8)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

PER_PIXEL void gather_pixel(const Gather *job, u32 image, u32 pixel) {
    u64 pixels = (u64)job->height * job->width, y = pixel / job->width, x = pixel % job->width;
    u64 from = job->images[image].from;
    const u8 *in = (const u8 *)from + y * job->images[image].row + x * CHANNELS;
    for (u32 channel = 0; channel < CHANNELS; channel++) {
        u64 at = job->is_chw ? (image * (u64)CHANNELS + channel) * pixels + pixel : (image * pixels + pixel) * CHANNELS + channel;
        u32 entry = from ? in[channel] * CHANNELS + channel : 0;
        if (job->bytes == 1) ((u8 *)job->to)[at] = from ? in[channel] : 0;
        else if (job->bytes == 2) ((u16 *)job->to)[at] = from ? ((const u16 *)job->table)[entry] : 0;
        else ((u32 *)job->to)[at] = from ? ((const u32 *)job->table)[entry] : 0;
    }
}

/* As crates/kino_codec/src/video/rgb.rs has it, for every bit: >> rounds down. */
PER_PIXEL void nv12_pixel(const Nv12 *job, u32 image, u32 pixel) {
    u64 y = pixel / job->width, x = pixel % job->width;
    const u8 *from = (const u8 *)job->images[image].from;
    const u8 *uv = from + job->chroma + (y / 2) * job->pitch + (x / 2) * 2;
    int u = 8 * uv[0] - 1024, v = 8 * uv[1] - 1024;
    int luma = ((8 * from[y * job->pitch + x] - job->black) * job->luma) >> 16;
    int shifts[CHANNELS] = {(v * job->red_v) >> 16, ((u * job->green_u) >> 16) + ((v * job->green_v) >> 16), (u * job->blue_u) >> 16};
    u8 *to = (u8 *)job->images[image].to + (u64)pixel * CHANNELS;
    for (int channel = 0; channel < CHANNELS; channel++) {
        int value = luma + shifts[channel];
        to[channel] = (u8)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

#ifdef __CUDACC_RTC__
/* An image has fewer than 2^31 pixels, so that the number of a thread fits. */
#define KERNEL(name, Job)                                                   \
    extern "C" __global__ void __launch_bounds__(256) name(const Job job) { \
        u32 pixel = blockIdx.x * blockDim.x + threadIdx.x;                  \
        if (pixel < job.height * job.width) name##_pixel(&job, blockIdx.y, pixel); \
    }
KERNEL(resize, Resize)
KERNEL(gather, Gather)
KERNEL(nv12, Nv12)
#endif
