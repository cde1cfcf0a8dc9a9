/* nvJPEG without a GPU, for tests: its engine starts at once and ends as late as it may, as the one in hardware does.
 *
 *     nvjpegDecodeBatched ──▶ at once, whatever the stream has still to do: the place of each image is overwritten
 *                         ──▶ once the stream comes to it (fake_cuda.c): the file is read, its pixels are written
 *
 * So a place that is still read, pixels that are used too early and files that are gone too early are seen. A file is
 *
 *     | "KJ" | what, u8 | seed, u8 | height, i32 | width, i32 |     what: 'P' pixels, 'E' cannot be decoded, 'Q' not in hardware
 *
 * and byte k of its pixels is (seed + k) mod 251. Other files are decoded by a function of the test (`fake_jpeg_decode_with`), at once,
 * and their pixels written when the stream comes to it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID = 2, BAD_JPEG = 3, EXECUTION_FAILED = 6, ARCH_MISMATCH = 7 };
enum { HARDWARE = 3, INTERLEAVED = 5, LENGTH = 12 };

typedef struct State { int images; } State;
typedef struct Image { uint8_t *channel[4]; size_t pitch[4]; } Image;
typedef struct Work { const uint8_t *file; Image image; uint8_t *pixels; int32_t height, width; } Work;
/* Gives the size of a file, and its pixels if there is room for them; 0 if it can be decoded. */
typedef int (*Decode)(const uint8_t *file, size_t bytes, int32_t *size, uint8_t *pixels);

/* Of fake_cuda.c. */
void fake_call(void *stream, void (*call)(void *), void *with);
int fake_may_use(uint64_t memory, size_t bytes);

static long live, pending, misuse, initialized, decoded;
static int is_without_hardware;
static Decode decode_with;

static int32_t number_at(const uint8_t *from) { int32_t number; memcpy(&number, from, sizeof number); return number; }

static int is_toy(const uint8_t *file, size_t bytes) { return bytes >= LENGTH && !memcmp(file, "KJ", 2); }
static int size_of(const uint8_t *file, size_t bytes, int32_t *size) {
    if (!is_toy(file, bytes)) return decode_with ? decode_with(file, bytes, size, NULL) : BAD_JPEG;
    size[0] = number_at(file + 4);
    size[1] = number_at(file + 8);
    return SUCCESS;
}

int nvjpegGetProperty(int part, int *value) { *value = part == 0 ? 13 : part; return SUCCESS; }
int nvjpegCreateEx(int backend, const void *device, const void *host, unsigned flags, void **handle) {
    if (device || host || !flags) return INVALID;
    if (backend == HARDWARE && is_without_hardware) return ARCH_MISMATCH;
    live++;
    *(int **)handle = memcpy(malloc(sizeof backend), &backend, sizeof backend);
    return SUCCESS;
}
int nvjpegDestroy(void *handle) { live--; free(handle); return SUCCESS; }
int nvjpegJpegStateCreate(void *handle, State **state) {
    (void)handle;
    live++;
    *state = calloc(1, sizeof **state);
    return SUCCESS;
}
int nvjpegJpegStateDestroy(State *state) { live--; misuse += pending != 0; free(state); return SUCCESS; }
int nvjpegGetImageInfo(void *handle, const uint8_t *file, size_t bytes, int *components, int *sampling, int *widths, int *heights) {
    (void)handle;
    int32_t size[2];
    if (size_of(file, bytes, size)) return BAD_JPEG;
    *components = 3;
    *sampling = 0;
    for (int k = 0; k < 4; k++) { heights[k] = size[0] >> (k > 0); widths[k] = size[1] >> (k > 0); }
    return SUCCESS;
}
int nvjpegDecodeBatchedInitialize(void *handle, State *state, int images, int threads, int format) {
    (void)handle;
    if (images < 1 || threads < 1 || format != INTERLEAVED) return INVALID;
    state->images = images;
    initialized++;
    return SUCCESS;
}
static void write_pixels(void *with) {
    Work *work = with;
    size_t row = (size_t)work->width * 3;
    for (size_t y = 0; y < (size_t)work->height; y++)
        for (size_t x = 0; x < row; x++)
            work->image.channel[0][y * work->image.pitch[0] + x] =
                work->pixels ? work->pixels[y * row + x] : (uint8_t)((work->file[3] + y * row + x) % 251);
    pending--;
    decoded++;
    free(work->pixels);
    free(work);
}
int nvjpegDecodeBatched(int *handle, State *state, const uint8_t *const *files, const size_t *lengths, const Image *images, void *stream) {
    int count = state->images;
    if (!count) return NOT_INITIALIZED;
    for (int k = 0; k < count; k++) {
        int32_t size[2];
        int toy = is_toy(files[k], lengths[k]);
        if (size_of(files[k], lengths[k], size) || (toy && (files[k][2] == 'E' || (files[k][2] == 'Q' && *handle == HARDWARE)))) {
            /* What was started goes on; the state has to be initialized again. */
            state->images = 0;
            return EXECUTION_FAILED;
        }
        size_t height = (size_t)size[0], row = (size_t)size[1] * 3;
        size_t bytes = (height - 1) * images[k].pitch[0] + row;
        if (images[k].pitch[0] < row || fake_may_use((uintptr_t)images[k].channel[0], bytes)) return INVALID;
        memset(images[k].channel[0], 0xC3, bytes);
        Work *work = malloc(sizeof *work);
        *work = (Work){files[k], images[k], toy ? NULL : malloc(height * row), size[0], size[1]};
        if (work->pixels) decode_with(files[k], lengths[k], size, work->pixels);
        pending++;
        fake_call(stream, write_pixels, work);
    }
    return SUCCESS;
}

/* For the tests. */
void fake_jpeg_decode_with(Decode decode) { decode_with = decode; }
void fake_jpeg_without_hardware(void) { is_without_hardware = 1; }
/* Handles and states that were not destroyed. */
long fake_jpeg_live(void) { return live; }
/* Images that are still being decoded. */
long fake_jpeg_pending(void) { return pending; }
/* States that were destroyed while they decoded. */
long fake_jpeg_misuse(void) { return misuse; }
/* Images that were decoded. */
long fake_jpeg_decoded(void) { return decoded; }
long fake_jpeg_initialized(void) { return initialized; }
