/* A CUDA driver without a GPU, for tests: device memory is the host's, and work is done as late as the driver may.
 *
 *     stream ≠ 0    a queue: copies, kernels, waits, records, reads; run only when an event is waited for or was asked about often
 *     stream 0      who uses it is the CPU: what is asked of it happens at once, and waits for what it depends on
 *
 * So what is used too early is seen: fresh and freed device memory is poisoned, a copy reads its source when it runs, and
 * `fake_read` reads device memory in a stream as a kernel would. Misuse is counted (`fake_count`).
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kernels themselves, as plain C. */
#include "../src/kernels/images.cu"

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_READY = 600, REGISTERED = 712, NOT_REGISTERED = 713 };
enum { COPY, READ, RECORD, WAIT, CALL, LAUNCH };
/* What cuModuleGetFunction returns. */
enum { RESIZE = 1, GATHER = 2, NV12 = 3 };
/* A pending event is asked about this often before the work in front of it is done: a poll comes to an end. */
enum { PATIENCE = 3 };

typedef struct Event { uint64_t asked, done; int queries; struct Stream *stream; } Event;
typedef struct Op {
    int what;
    void *to; const void *from; size_t bytes;
    Event *event; uint64_t turn;
    void (*call)(void *);
    size_t kernel; unsigned blocks, threads, images;
    struct Op *next;
} Op;
typedef struct Stream { Op *first, *last; } Stream;
typedef struct Range { uintptr_t start; size_t bytes; struct Range *next; } Range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static int is_held;
static Stream *streams[64];
static Range *registered, *allocated;
static size_t device_bytes, device_limit = (size_t)-1;
static size_t register_limit = (size_t)-1, registered_bytes;
static __thread int contexts;
static struct { const char *name; long count; } counts[] = {
    {"copies", 0}, {"pageable", 0}, {"registered", 0}, {"unregistered", 0}, {"allocated", 0}, {"freed", 0},
    {"unregistered while copied", 0}, {"without context", 0}, {"outside memory", 0}, {"waits", 0}, {"modules", 0}, {"kernels", 0},
};

static long *count(const char *name) {
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!strcmp(counts[i].name, name)) return &counts[i].count;
    abort();
}
static int is_in(const Range *range, uintptr_t start, size_t bytes) {
    for (; range; range = range->next)
        if (start >= range->start && start + bytes <= range->start + range->bytes) return 1;
    return 0;
}
static void add(Range **list, uintptr_t start, size_t bytes) {
    Range *range = malloc(sizeof *range);
    *range = (Range){start, bytes, *list};
    *list = range;
}
static size_t cut(Range **list, uintptr_t start) {
    for (; *list; list = &(*list)->next)
        if ((*list)->start == start) {
            Range *gone = *list;
            size_t bytes = gone->bytes;
            *list = gone->next;
            free(gone);
            return bytes;
        }
    return 0;
}

/* The same for frames of video. */
static void launch_nv12(const Op *op) {
    const Nv12 *job = op->to;
    uint64_t pixels = (uint64_t)job->height * job->width;
    uint64_t bytes = job->chroma + (job->height / 2 - 1) * job->pitch + job->width;
    for (unsigned image = 0; image < op->images; image++) {
        if (!is_in(allocated, job->images[image].from, bytes) || !is_in(allocated, job->images[image].to, pixels * 3)) {
            ++*count("outside memory");
            return;
        }
        for (uint64_t pixel = 0; pixel < (uint64_t)op->blocks * op->threads && pixel < pixels; pixel++) nv12_pixel(job, image, pixel);
    }
}
/* Does what a kernel does, once per thread, if it stays inside memory. `to` is a copy of its parameter. */
static void launch(const Op *op) {
    if (op->kernel == NV12) { launch_nv12(op); return; }
    const Resize *resize = op->to;
    const Gather *gather = op->to;
    int is_resize = op->kernel == RESIZE;
    uint64_t pixels = is_resize ? (uint64_t)resize->height * resize->width : (uint64_t)gather->height * gather->width;
    if (!is_resize && !is_in(allocated, gather->to, pixels * 3 * gather->bytes * op->images)) { ++*count("outside memory"); return; }
    for (unsigned image = 0; image < op->images; image++) {
        uint64_t from = is_resize ? resize->from + image * resize->from_image : gather->images[image].from;
        uint64_t across = resize->is_horizontal ? resize->height : resize->width;
        uint64_t bytes = is_resize ? resize->last * resize->along_step + (across - 1) * resize->across_step + 3
                                   : (gather->height - 1) * gather->images[image].row + gather->width * 3;
        if (from && !is_in(allocated, from, bytes)) { ++*count("outside memory"); return; }
        if (is_resize && !is_in(allocated, resize->to[image], pixels * 3)) { ++*count("outside memory"); return; }
        for (uint64_t pixel = 0; pixel < (uint64_t)op->blocks * op->threads && pixel < pixels; pixel++)
            if (is_resize) resize_pixel(resize, image, pixel); else gather_pixel(gather, image, pixel);
    }
}
static void reach(Event *event, uint64_t turn);
static void step(Stream *stream) {
    Op *op = stream->first;
    stream->first = op->next;
    if (!op->next) stream->last = NULL;
    switch (op->what) {
    case COPY: memcpy(op->to, op->from, op->bytes); break;
    case READ: { uint64_t sum = 0; for (size_t i = 0; i < op->bytes; i++) sum = sum * 31 + ((const uint8_t *)op->from)[i];
                 *(uint64_t *)op->to = sum; break; }
    case RECORD: op->event->done = op->turn; break;
    case WAIT: reach(op->event, op->turn); break;
    case CALL: op->call(op->to); break;
    case LAUNCH: launch(op); free(op->to); break;
    }
    free(op);
}
/* Does everything that a record of an event waits for. */
static void reach(Event *event, uint64_t turn) {
    while (event->done < turn && event->stream && event->stream->first) step(event->stream);
}
static void run_all(void) {
    for (size_t i = 0; i < 64; i++)
        while (streams[i] && streams[i]->first) step(streams[i]);
}
static void push(Stream *stream, Op op) {
    Stream now = {0}, *queue = stream ? stream : &now;
    Op *made = malloc(sizeof *made);
    *made = op;
    made->next = NULL;
    if (queue->last) queue->last->next = made; else queue->first = made;
    queue->last = made;
    if (!stream) step(queue);
}
static int enter(void) {
    pthread_mutex_lock(&lock);
    if (!contexts) { ++*count("without context"); pthread_mutex_unlock(&lock); return INVALID_CONTEXT; }
    return SUCCESS;
}
static int leave(int code) { pthread_mutex_unlock(&lock); return code; }
#define ENTER do { int code = enter(); if (code) return code; } while (0)

int cuInit(unsigned flags) { return flags ? INVALID : SUCCESS; }
int cuGetErrorName(int code, const char **text) {
    *text = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == INVALID ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_FAKE";
    return SUCCESS;
}
int cuGetErrorString(int code, const char **text) { (void)code; *text = "as the fake driver says"; return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { if (ordinal > 1) return 101; *device = ordinal; return SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(uintptr_t)(device + 1); return SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return SUCCESS; }
int cuCtxPushCurrent_v2(void *context) { (void)context; contexts++; return SUCCESS; }
int cuCtxPopCurrent_v2(void **context) { *context = NULL; contexts--; return SUCCESS; }
int cuThreadExchangeStreamCaptureMode(int *mode) { static __thread int now; int was = now; now = *mode; *mode = was; return SUCCESS; }

int cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER;
    for (Range *range = registered; range; range = range->next)
        if ((uintptr_t)start < range->start + range->bytes && range->start < (uintptr_t)start + bytes) return leave(REGISTERED);
    if (registered_bytes + bytes > register_limit) return leave(OUT_OF_MEMORY);
    registered_bytes += bytes;
    add(&registered, (uintptr_t)start, bytes);
    ++*count("registered");
    return leave(SUCCESS);
}
int cuMemHostUnregister(void *start) {
    ENTER;
    size_t bytes = cut(&registered, (uintptr_t)start);
    registered_bytes -= bytes;
    for (size_t i = 0; i < 64; i++)
        for (Op *op = streams[i] ? streams[i]->first : NULL; op; op = op->next)
            if (op->what == COPY && (uintptr_t)op->from - (uintptr_t)start < bytes) ++*count("unregistered while copied");
    ++*count("unregistered");
    return leave(bytes ? SUCCESS : NOT_REGISTERED);
}
int cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
    ENTER;
    if (!bytes) return leave(INVALID);
    if (device_bytes + bytes > device_limit) return leave(OUT_OF_MEMORY);
    void *made = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(made, 0xA5, bytes);
    device_bytes += bytes;
    add(&allocated, (uintptr_t)made, bytes);
    ++*count("allocated");
    *memory = (uintptr_t)made;
    return leave(SUCCESS);
}
int cuMemFree_v2(uint64_t memory) {
    ENTER;
    run_all();
    size_t bytes = cut(&allocated, memory);
    if (!bytes) return leave(INVALID);
    memset((void *)(uintptr_t)memory, 0x5A, bytes);
    free((void *)(uintptr_t)memory);
    device_bytes -= bytes;
    ++*count("freed");
    return leave(SUCCESS);
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    ENTER;
    ++*count("copies");
    if (!is_in(allocated, to, bytes)) { ++*count("outside memory"); return leave(INVALID); }
    push(stream, (Op){.what = COPY, .to = (void *)(uintptr_t)to, .from = from, .bytes = bytes});
    if (!is_in(registered, (uintptr_t)from, bytes)) {
        /* The driver copies pageable memory itself, before it returns. */
        ++*count("pageable");
        Stream *queue = stream;
        while (queue && queue->first) step(queue);
    }
    return leave(SUCCESS);
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    ENTER;
    if (!is_in(allocated, to, bytes) || !is_in(allocated, from, bytes)) { ++*count("outside memory"); return leave(INVALID); }
    push(stream, (Op){.what = COPY, .to = (void *)(uintptr_t)to, .from = (void *)(uintptr_t)from, .bytes = bytes});
    return leave(SUCCESS);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    ENTER;
    if (!is_in(allocated, from, bytes)) { ++*count("outside memory"); return leave(INVALID); }
    push(stream, (Op){.what = COPY, .to = to, .from = (void *)(uintptr_t)from, .bytes = bytes});
    return leave(SUCCESS);
}
int cuModuleLoadData(void **module, const void *image) {
    ENTER;
    if (!strstr(image, ".visible .entry resize(") || !strstr(image, ".visible .entry gather(") ||
        !strstr(image, ".visible .entry nv12(")) return leave(INVALID);
    ++*count("modules");
    *module = (void *)&counts;
    return leave(SUCCESS);
}
int cuModuleUnload(void *module) {
    ENTER;
    for (size_t i = 0; i < 64; i++)
        for (Op *op = streams[i] ? streams[i]->first : NULL; op; op = op->next)
            if (op->what == LAUNCH) ++*count("outside memory");
    --*count("modules");
    return leave(module == (void *)&counts ? SUCCESS : INVALID);
}
int cuModuleGetFunction(size_t *function, void *module, const char *name) {
    (void)module;
    *function = !strcmp(name, "resize") ? RESIZE : !strcmp(name, "gather") ? GATHER : !strcmp(name, "nv12") ? NV12 : 0;
    return *function ? SUCCESS : INVALID;
}
int cuLaunchKernel(size_t function, unsigned blocks, unsigned images, unsigned one, unsigned threads, unsigned y, unsigned z,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    ENTER;
    if (!blocks || !images || images > IMAGES || one != 1 || y != 1 || z != 1 || shared || extra) return leave(INVALID);
    size_t bytes = function == RESIZE ? sizeof(Resize) : function == NV12 ? sizeof(Nv12) : sizeof(Gather);
    void *job = memcpy(malloc(bytes), *parameters, bytes);
    ++*count("kernels");
    push(stream, (Op){.what = LAUNCH, .kernel = function, .to = job, .blocks = blocks, .threads = threads, .images = images});
    return leave(SUCCESS);
}
int cuStreamCreate(void **stream, unsigned flags) {
    ENTER;
    (void)flags;
    for (size_t i = 0; i < 64; i++)
        if (!streams[i]) {
            *stream = streams[i] = calloc(1, sizeof(Stream));
            return leave(SUCCESS);
        }
    return leave(OUT_OF_MEMORY);
}
int cuStreamDestroy_v2(void *stream) {
    ENTER;
    for (size_t i = 0; i < 64; i++)
        if (streams[i] == stream) {
            while (streams[i]->first) step(streams[i]);
            /* Not freed: an event may refer to it. */
            streams[i] = NULL;
        }
    return leave(SUCCESS);
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)flags;
    ENTER;
    ++*count("waits");
    Event *on = event;
    if (on->done < on->asked) push(stream, (Op){.what = WAIT, .event = on, .turn = on->asked});
    return leave(SUCCESS);
}
int cuEventCreate(void **event, unsigned flags) { (void)flags; ENTER; *event = calloc(1, sizeof(Event)); return leave(SUCCESS); }
/* Not freed: work that waits for it may be queued. */
int cuEventDestroy_v2(void *event) { (void)event; return SUCCESS; }
int cuEventRecord(void *event, void *stream) {
    ENTER;
    Event *one = event;
    one->stream = stream;
    one->queries = 0;
    push(stream, (Op){.what = RECORD, .event = one, .turn = ++one->asked});
    return leave(SUCCESS);
}
int cuEventQuery(void *event) {
    ENTER;
    Event *one = event;
    if (one->done < one->asked && ++one->queries > PATIENCE) reach(one, one->asked);
    return leave(one->done < one->asked ? NOT_READY : SUCCESS);
}
int cuEventSynchronize(void *event) {
    ENTER;
    Event *one = event;
    while (is_held) pthread_cond_wait(&let_go, &lock);
    reach(one, one->asked);
    return leave(SUCCESS);
}
int cuEventElapsedTime(float *elapsed_ms, void *start, void *end) { (void)start; (void)end; *elapsed_ms = 0.25F; return SUCCESS; }

/* For the tests. */
long fake_count(const char *name) { pthread_mutex_lock(&lock); long found = *count(name); pthread_mutex_unlock(&lock); return found; }
void fake_limit(size_t bytes) { pthread_mutex_lock(&lock); device_limit = bytes; pthread_mutex_unlock(&lock); }
void fake_register_limit(size_t bytes) { pthread_mutex_lock(&lock); register_limit = bytes; pthread_mutex_unlock(&lock); }
size_t fake_bytes(void) { return device_bytes; }
/* A stream that the test owns. */
void *fake_stream(void) { contexts++; void *stream = NULL; cuStreamCreate(&stream, 1); contexts--; return stream; }
/* A kernel that reads device memory and stores a sum of it. */
void fake_read(void *stream, uint64_t memory, size_t bytes, uint64_t *sum) {
    pthread_mutex_lock(&lock);
    push(stream, (Op){.what = READ, .to = sum, .from = (void *)(uintptr_t)memory, .bytes = bytes});
    pthread_mutex_unlock(&lock);
}
/* Work of another library: done when the stream comes to it, with the driver locked. */
void fake_call(void *stream, void (*call)(void *), void *with) {
    pthread_mutex_lock(&lock);
    push(stream, (Op){.what = CALL, .to = with, .call = call});
    pthread_mutex_unlock(&lock);
}
/* Whether another library may use device memory now. */
int fake_may_use(uint64_t memory, size_t bytes) {
    ENTER;
    int inside = is_in(allocated, memory, bytes);
    if (!inside) ++*count("outside memory");
    return leave(inside ? SUCCESS : INVALID);
}
/* Who waits for an event waits until this is called with 0: nothing happens by itself. */
void fake_hold(size_t hold) { pthread_mutex_lock(&lock); is_held = hold != 0; pthread_cond_broadcast(&let_go); pthread_mutex_unlock(&lock); }
/* Does what was asked of one stream, and what that waits for. */
void fake_run(Stream *stream) { pthread_mutex_lock(&lock); while (stream->first) step(stream); pthread_mutex_unlock(&lock); }
void fake_synchronize(void) { pthread_mutex_lock(&lock); run_all(); pthread_mutex_unlock(&lock); }
