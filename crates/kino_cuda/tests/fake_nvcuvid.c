/* NVDEC without a GPU, for tests: images are displayed as late as a parser may, and surfaces read when a stream comes to it.
 *
 *     cuvidParseVideoData ──▶ a picture to a surface ──▶ displayed once DEPTH others wait, or at the end of the stream
 *     cuvidMapVideoFrame  ──▶ once the stream comes to it (fake_cuda.c): the surface is read, a frame is written
 *     cuvidUnmapVideoFrame ─▶ at once: the frame is overwritten
 *
 * So surfaces that are decoded to too early, and frames that are used too early or too late are seen. A displayed surface is free for
 * the next picture, as for NVIDIA's parser, which goes through them in turns; `fake_video_reuse` takes the first that is free.
 * A packet is
 *
 *     | "KV" | what, u8 | seed, u8 | starts a group, u8 | order, u8 | height, u16 | width, u16 |
 *
 * and byte k of its picture (luma, then U and V in turns) is (sum + 7 k) mod 251: sum is 3 × that of the picture before it in the
 * group + seed, mod 256, so that no picture can be left out. Other packets are decoded by a function of the test.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_SUPPORTED = 801 };
enum { END_OF_STREAM = 1, LENGTH = 10, DEPTH = 3, MOST = 32, EDGE = 48 };

typedef struct Caps { int codec, chroma; unsigned depth, r[3]; uint8_t is_supported, engines; uint16_t formats; unsigned max_width, max_height, max_blocks; uint16_t min_width, min_height; unsigned others[11]; } Caps;
typedef struct Format { int codec; unsigned rate[2]; uint8_t is_progressive, luma, chroma_depth, surfaces; unsigned width, height; int left, top, right, bottom, chroma; unsigned others[5]; } Format;
typedef struct Create { unsigned long width, height, surfaces; int codec, chroma; unsigned long flags, depth, intra, max_width, max_height, r; short shown[4]; int output, deinterlace; unsigned long target_width, target_height, mapped; void *lock; short target[4]; unsigned long others[5]; } Create;
typedef struct Shown { int surface, is_progressive, is_top_first, repeated; long long timestamp; } Shown;
typedef struct Params { int codec; unsigned surfaces, clock, threshold, delay, flags, r[4]; void *user; int (*sequence)(void *, Format *); int (*decode)(void *, int *); int (*display)(void *, Shown *); void *others[8]; } Params;
typedef struct Packet { unsigned long flags, bytes; const uint8_t *start; long long timestamp; } Packet;
typedef struct Mapping { int i[4]; unsigned r[2]; uint64_t raw[4]; void *stream; uint64_t others[25]; } Mapping;
_Static_assert(sizeof(Caps) == 88 && sizeof(Format) == 64 && sizeof(Create) == 176 && sizeof(Params) == 136 && sizeof(Mapping) == 264, "as in NVIDIA's headers");

/* What is known of a packet of a test: height, width, order, whether it starts a group; and, if there is room, its picture. */
typedef int (*Decode)(const uint8_t *packet, size_t bytes, int32_t *info, uint8_t *picture);

typedef struct Picture { int height, width, order, is_key, sum; uint8_t what; uint8_t *pixels; } Picture;
typedef struct Waiting { int surface, order; long long timestamp; uint8_t what; } Waiting;
typedef struct Parser { Params params; Waiting waiting[MOST]; int count, surfaces, next, sum, last; Format format; int is_open; } Parser;
/* Begins as a CUVIDPICPARAMS does. */
typedef struct Coded { int width, height, surface; const Picture *picture; } Coded;
typedef struct Surface { uint8_t *pixels; uint8_t what; int is_waited_for; } Surface;
typedef struct Output { uint64_t memory; int is_mapped, is_written; } Output;
typedef struct Decoder { Create create; Surface surfaces[MOST]; Output outputs[MOST]; size_t pitch; } Decoder;
typedef struct Work { Decoder *decoder; Surface *surface; Output *output; } Work;

/* Of fake_cuda.c. */
void fake_call(void *stream, void (*call)(void *), void *with);
int cuMemAlloc_v2(uint64_t *memory, size_t bytes);
int cuMemFree_v2(uint64_t memory);

static long live, misuse, decoded, created, mapped, most_mapped, limit = 1000, reuse, without, no_status;
static Decode decode_with;

static int read_packet(const Packet *packet, Picture *found, int sum) {
    const uint8_t *from = packet->start;
    if (packet->bytes < LENGTH || memcmp(from, "KV", 2)) {
        int32_t info[4];
        if (!decode_with || decode_with(from, packet->bytes, info, NULL)) return INVALID;
        *found = (Picture){info[0], info[1], info[2], info[3], 0, 'P', NULL};
        found->pixels = malloc((size_t)info[0] * info[1] * 3 / 2);
        return decode_with(from, packet->bytes, info, found->pixels);
    }
    *found = (Picture){from[6] | from[7] << 8, from[8] | from[9] << 8, from[5], from[4], 0, from[2], NULL};
    if (found->what == 'X') return INVALID;
    found->sum = ((found->is_key ? 0 : 3 * sum) + from[3]) % 256;
    size_t bytes = (size_t)found->height * found->width * 3 / 2;
    found->pixels = malloc(bytes + 1);
    for (size_t k = 0; k < bytes; k++) found->pixels[k] = (uint8_t)((found->sum + 7 * k) % 251);
    return SUCCESS;
}

int cuvidGetDecoderCaps(Caps *caps) {
    int is_known = (caps->codec == 4 || caps->codec == 8) && caps->codec != without && caps->chroma == 1 && !caps->depth;
    caps->is_supported = caps->formats = (uint8_t)is_known;
    caps->engines = is_known ? 3 : 0;
    caps->max_width = caps->max_height = 4096;
    caps->max_blocks = 65536;
    caps->min_width = caps->min_height = 8;
    return SUCCESS;
}
int cuvidCreateVideoParser(Parser **parser, Params *params) {
    if (params->delay > 4 || params->threshold) return INVALID;
    live++;
    *parser = calloc(1, sizeof **parser);
    (*parser)->params = *params;
    return SUCCESS;
}
int cuvidDestroyVideoParser(Parser *parser) { live--; free(parser); return SUCCESS; }

static int display(Parser *parser) {
    int first = 0;
    for (int k = 1; k < parser->count; k++) if (parser->waiting[k].order < parser->waiting[first].order) first = k;
    Waiting one = parser->waiting[first];
    /* Displays sort timestamps: an image may have that of another packet. */
    for (int k = 0; k < parser->count; k++)
        if (parser->waiting[k].timestamp < one.timestamp) { long long other = parser->waiting[k].timestamp; parser->waiting[k].timestamp = one.timestamp; one.timestamp = other; }
    memmove(parser->waiting + first, parser->waiting + first + 1, sizeof one * (size_t)(--parser->count - first));
    Shown shown = {one.what == 'N' ? MOST - 1 : one.surface, 1, 0, 0, one.timestamp};
    for (int times = one.what == 'M' ? 0 : one.what == 'T' ? 2 : 1; times > 0; times--)
        if (!parser->params.display(parser->params.user, &shown)) return INVALID;
    return SUCCESS;
}
static int begin(Parser *parser, const Picture *picture) {
    Format format = {.codec = parser->params.codec, .is_progressive = picture->what != 'I', .luma = picture->what == '1' ? 2 : 0,
                     .surfaces = picture->what == 'B' ? DEPTH + 9 : DEPTH + 2, .width = (unsigned)picture->width, .height = (unsigned)picture->height,
                     .right = picture->width, .bottom = picture->height, .chroma = picture->what == '4' ? 3 : 1};
    if (parser->is_open && !memcmp(&format, &parser->format, sizeof format)) return SUCCESS;
    parser->surfaces = parser->params.sequence(parser->params.user, &format);
    if (parser->surfaces < format.surfaces || parser->surfaces > MOST) return INVALID;
    parser->format = format;
    parser->is_open = 1;
    return SUCCESS;
}
static int is_busy(const Parser *parser, int surface) {
    for (int k = 0; k < parser->count; k++) if (parser->waiting[k].surface == surface) return 1;
    return surface == parser->last;
}
int cuvidParseVideoData(Parser *parser, Packet *packet) {
    if (packet->flags & END_OF_STREAM) {
        while (parser->count) if (display(parser)) return INVALID;
        /* The next packet says what it is again. */
        parser->is_open = 0;
        parser->last = -1;
        return SUCCESS;
    }
    if (packet->flags != 8) return INVALID;
    Picture picture;
    int code = read_packet(packet, &picture, parser->sum);
    if (!code) code = picture.is_key ? begin(parser, &picture) : parser->is_open ? SUCCESS : INVALID;
    if (code) return INVALID;
    int surface = reuse ? 0 : parser->next;
    while (is_busy(parser, surface)) surface = (surface + 1) % parser->surfaces;
    parser->next = (surface + 1) % parser->surfaces;
    parser->sum = picture.sum;
    parser->last = surface;
    Coded coded = {picture.width / 16, picture.height / 16, surface, &picture};
    code = !parser->params.decode(parser->params.user, (int *)&coded);
    if (!code && picture.what == '2') {
        coded.surface = (surface + 1) % parser->surfaces;
        code = is_busy(parser, coded.surface) || !parser->params.decode(parser->params.user, (int *)&coded);
    }
    free(picture.pixels);
    if (code) return INVALID;
    parser->waiting[parser->count++] = (Waiting){surface, picture.order, packet->timestamp, picture.what};
    while (parser->count > DEPTH) if (display(parser)) return INVALID;
    return SUCCESS;
}

int cuvidCreateDecoder(Decoder **decoder, Create *create) {
    if (created >= limit) return OUT_OF_MEMORY;
    if (create->surfaces > MOST || !create->mapped || create->output || create->target_width != create->width) return INVALID;
    created++;
    live++;
    *decoder = calloc(1, sizeof **decoder);
    (*decoder)->create = *create;
    (*decoder)->pitch = create->width + EDGE;
    for (unsigned long k = 0; k < create->mapped; k++)
        if (cuMemAlloc_v2(&(*decoder)->outputs[k].memory, (*decoder)->pitch * create->height * 3 / 2)) return OUT_OF_MEMORY;
    return SUCCESS;
}
int cuvidDestroyDecoder(Decoder *decoder) {
    for (unsigned long k = 0; k < decoder->create.mapped; k++) {
        misuse += decoder->outputs[k].is_mapped;
        cuMemFree_v2(decoder->outputs[k].memory);
    }
    for (int k = 0; k < MOST; k++) free(decoder->surfaces[k].pixels);
    live--;
    free(decoder);
    return SUCCESS;
}
int cuvidDecodePicture(Decoder *decoder, Coded *coded) {
    size_t bytes = decoder->create.width * decoder->create.height * 3 / 2;
    if ((unsigned long)coded->surface >= decoder->create.surfaces) { misuse++; return INVALID; }
    Surface *surface = &decoder->surfaces[coded->surface];
    if (!surface->pixels) surface->pixels = malloc(bytes);
    memcpy(surface->pixels, coded->picture->pixels, bytes);
    surface->what = coded->picture->what;
    surface->is_waited_for = 0;
    decoded++;
    return SUCCESS;
}
int cuvidGetDecodeStatus(Decoder *decoder, int surface, int *status) {
    Surface *found = &decoder->surfaces[surface];
    if (no_status) return NOT_SUPPORTED;
    *status = found->what == 'D' ? 8 : found->what == 'S' && !found->is_waited_for ? 1 : 2;
    return SUCCESS;
}
static void write_frame(void *with) {
    Work *work = with;
    size_t width = work->decoder->create.width, rows = work->decoder->create.height * 3 / 2;
    for (size_t y = 0; y < rows; y++)
        memcpy((uint8_t *)(uintptr_t)work->output->memory + y * work->decoder->pitch, work->surface->pixels + y * width, width);
    work->output->is_written = 1;
    free(work);
}
int cuvidMapVideoFrame64(Decoder *decoder, int surface, uint64_t *address, unsigned *pitch, Mapping *mapping) {
    Surface *found = &decoder->surfaces[surface];
    if (!found->pixels || found->what == 'U') return INVALID;
    for (unsigned long k = 0; k < decoder->create.mapped; k++) {
        Output *output = &decoder->outputs[k];
        if (output->is_mapped) continue;
        *output = (Output){output->memory, 1, 0};
        found->is_waited_for = 1;
        Work *work = malloc(sizeof *work);
        *work = (Work){decoder, found, output};
        *address = output->memory;
        *pitch = (unsigned)decoder->pitch;
        mapped++;
        if (mapped > most_mapped) most_mapped = mapped;
        fake_call(mapping->stream, write_frame, work);
        return SUCCESS;
    }
    return INVALID;
}
int cuvidUnmapVideoFrame64(Decoder *decoder, uint64_t address) {
    for (unsigned long k = 0; k < decoder->create.mapped; k++) {
        Output *output = &decoder->outputs[k];
        if (output->memory != address || !output->is_mapped) continue;
        misuse += !output->is_written;
        output->is_mapped = 0;
        mapped--;
        memset((void *)(uintptr_t)address, 0x5A, decoder->pitch * decoder->create.height * 3 / 2);
        return SUCCESS;
    }
    misuse++;
    return INVALID;
}

/* For the tests. */
void fake_video_decode_with(Decode decode) { decode_with = decode; }
/* Takes the first surface that is free, as if there were no others. */
void fake_video_reuse(long is_on) { reuse = is_on; }
/* No decoder of this codec; no more decoders than this; no status. */
void fake_video_without(long codec) { without = codec; }
void fake_video_limit(long most) { limit = most; }
void fake_video_without_status(long is_on) { no_status = is_on; }
/* Parsers and decoders that were not destroyed. */
long fake_video_live(void) { return live; }
long fake_video_misuse(void) { return misuse; }
long fake_video_decoded(void) { return decoded; }
long fake_video_created(void) { return created; }
long fake_video_most_mapped(void) { return most_mapped; }
