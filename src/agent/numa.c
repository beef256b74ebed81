/* agent/numa.c - CPUs near a GPU, or an even share of them. */
#include "agent/numa.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/number.h"

#define GPUS_MAX 256
#define NODES_MAX 1024
#define NVIDIA_VENDOR "0x10de"
#define CACHE_INDEXES_MAX 10
#define SYS_PATH_SIZE 320 /* below /sys: a kernel name of 255 bytes, and the rest of the path */

/* --- sets --- */

bool mst__cpu_set_has(const struct mst__cpu_set *set, size_t cpu)
{
    return cpu < MST_CPUS_MAX && (set->words[cpu / 64] >> cpu % 64 & 1) != 0;
}

void mst__cpu_set_add(struct mst__cpu_set *set, size_t cpu)
{
    if (cpu < MST_CPUS_MAX) {
        set->words[cpu / 64] |= (uint64_t)1 << cpu % 64;
    }
}

size_t mst__cpu_set_count(const struct mst__cpu_set *set)
{
    size_t count = 0;
    for (size_t cpu = 0; cpu < MST_CPUS_MAX; cpu++) {
        count += mst__cpu_set_has(set, cpu) ? 1 : 0;
    }
    return count;
}

static void set_and(struct mst__cpu_set *set, const struct mst__cpu_set *other)
{
    for (size_t i = 0; i < MST_CPUS_MAX / 64; i++) {
        set->words[i] &= other->words[i];
    }
}

static void set_or(struct mst__cpu_set *set, const struct mst__cpu_set *other)
{
    for (size_t i = 0; i < MST_CPUS_MAX / 64; i++) {
        set->words[i] |= other->words[i];
    }
}

/* The lowest CPU; MST_CPUS_MAX = none. */
static size_t set_first(const struct mst__cpu_set *set)
{
    size_t cpu = 0;
    while (cpu < MST_CPUS_MAX && !mst__cpu_set_has(set, cpu)) {
        cpu++;
    }
    return cpu;
}

bool mst__cpu_set_parse(const char *text, struct mst__cpu_set *ret_set)
{
    *ret_set = (struct mst__cpu_set){0};
    size_t length = strcspn(text, "\n");
    for (size_t at = 0; at < length;) {
        size_t size = strcspn(text + at, ",\n");
        size_t dash = strcspn(text + at, "-");
        int64_t first = 0;
        int64_t last = 0;
        bool is_range = dash < size;
        if (!mst__number_parse(mst_bytes_of(text + at, is_range ? dash : size), 0, MST_CPUS_MAX - 1,
                               &first)) {
            return false;
        }
        last = first;
        if (is_range && !mst__number_parse(mst_bytes_of(text + at + dash + 1, size - dash - 1),
                                           first, MST_CPUS_MAX - 1, &last)) {
            return false;
        }
        for (int64_t cpu = first; cpu <= last; cpu++) {
            mst__cpu_set_add(ret_set, (size_t)cpu);
        }
        at += size + 1;
    }
    return true;
}

void mst__cpu_set_allowed(struct mst__cpu_set *ret_set)
{
    *ret_set = (struct mst__cpu_set){0};
    static_assert(sizeof ret_set->words * 8 == MST_CPUS_MAX, "one bit each");
    if (sched_getaffinity(0, sizeof ret_set->words, (cpu_set_t *)ret_set->words) != 0) {
        mst__cpu_set_add(ret_set, 0);
    }
}

int mst__cpu_set_bind(const struct mst__cpu_set *set)
{
    return sched_setaffinity(0, sizeof set->words, (const cpu_set_t *)set->words) == 0 ? 0 : errno;
}

/* --- sysfs --- */

/* Read the first line of a file below @root/sys; "" if there is none. */
static const char *read_sys(const char *root, const char *path, char *ret_text, size_t size)
{
    char whole[PATH_MAX];
    (void)snprintf(whole, sizeof whole, "%s/sys/%s", root, path);
    int fd = open(whole, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, ret_text, size - 1);
    if (fd >= 0) {
        (void)close(fd); /* only read from */
    }
    length = length < 0 ? 0 : length;
    ret_text[length] = '\0';
    ret_text[strcspn(ret_text, "\n")] = '\0';
    return ret_text;
}

static int64_t read_sys_number(const char *root, const char *path, int64_t preset)
{
    char text[64];
    int64_t number = 0;
    (void)read_sys(root, path, text, sizeof text);
    return mst__number_parse_prefix(mst_bytes_str(text), &number) ? number : preset;
}

static bool read_sys_cpus(const char *root, const char *path, struct mst__cpu_set *ret_set)
{
    char text[4096];
    *ret_set = (struct mst__cpu_set){0};
    return read_sys(root, path, text, sizeof text)[0] != '\0' && mst__cpu_set_parse(text, ret_set);
}

static void node_cpus(const char *root,
                      int64_t node,
                      const struct mst__cpu_set *allowed,
                      struct mst__cpu_set *ret_set)
{
    char path[SYS_PATH_SIZE];
    (void)snprintf(path, sizeof path, "devices/system/node/node%" PRId64 "/cpulist", node);
    if (!read_sys_cpus(root, path, ret_set) && node == 0) {
        *ret_set = *allowed; /* a kernel without NUMA */
    }
    set_and(ret_set, allowed);
}

/* NUMA nodes with allowed CPUs, in order. */
static size_t list_nodes(const char *root, const struct mst__cpu_set *allowed, int64_t *ret_nodes)
{
    struct mst__cpu_set online;
    struct mst__cpu_set cpus;
    size_t count = 0;
    if (!read_sys_cpus(root, "devices/system/node/online", &online)) {
        online = (struct mst__cpu_set){.words = {1}};
    }
    for (size_t node = 0; node < NODES_MAX; node++) {
        if (mst__cpu_set_has(&online, node)) {
            node_cpus(root, (int64_t)node, allowed, &cpus);
            if (mst__cpu_set_count(&cpus) > 0) {
                ret_nodes[count++] = (int64_t)node;
            }
        }
    }
    return count;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* NUMA nodes of the GPUs, by bus address. That is CUDA's order with CUDA_DEVICE_ORDER=PCI_BUS_ID,
 * and usually without it. */
static size_t list_gpus(const char *root, int64_t ret_nodes[GPUS_MAX])
{
    char whole[PATH_MAX];
    char path[SYS_PATH_SIZE];
    char names[GPUS_MAX][32];
    size_t count = 0;
    (void)snprintf(whole, sizeof whole, "%s/sys/bus/pci/devices", root);
    DIR *directory = opendir(whole);
    for (struct dirent *entry = NULL;
         directory != NULL && count < GPUS_MAX && (entry = readdir(directory)) != NULL;) {
        char vendor[32];
        char class_text[32];
        if (strlen(entry->d_name) >= sizeof names[0]) {
            continue;
        }
        (void)snprintf(path, sizeof path, "bus/pci/devices/%s/vendor", entry->d_name);
        (void)read_sys(root, path, vendor, sizeof vendor);
        (void)snprintf(path, sizeof path, "bus/pci/devices/%s/class", entry->d_name);
        (void)read_sys(root, path, class_text, sizeof class_text);
        if (strcmp(vendor, NVIDIA_VENDOR) == 0 && strncmp(class_text, "0x03", 4) == 0) {
            (void)snprintf(names[count++], sizeof names[0], "%.31s", entry->d_name);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory); /* only read from */
    }
    qsort(names, count, sizeof names[0], compare_text);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(path, sizeof path, "bus/pci/devices/%.31s/numa_node", names[i]);
        int64_t node = read_sys_number(root, path, 0);
        ret_nodes[i] = node < 0 ? 0 : node;
    }
    return count;
}

/* --- where a worker belongs --- */

/* The worker's NUMA node, and its number among the workers there. */
struct seat {
    int64_t node;
    int64_t index, count;
};

static struct seat find_seat(const char *root,
                             int64_t local_rank,
                             int64_t nproc,
                             const struct mst__cpu_set *allowed)
{
    int64_t gpus[GPUS_MAX];
    int64_t nodes[NODES_MAX];
    int64_t gpus_count = (int64_t)list_gpus(root, gpus);
    int64_t nodes_count = (int64_t)list_nodes(root, allowed, nodes);
    struct seat seat = {.node = 0};
    if (nodes_count == 0) {
        return seat;
    }
    for (int64_t rank = 0; rank < nproc; rank++) {
        /* Without a GPU for each worker, neighbours share a NUMA node. */
        int64_t node = gpus_count >= nproc ? gpus[rank] : nodes[rank * nodes_count / nproc];
        int64_t own =
            gpus_count >= nproc ? gpus[local_rank] : nodes[local_rank * nodes_count / nproc];
        seat.node = own;
        if (node == own) {
            seat.index += rank < local_rank ? 1 : 0;
            seat.count++;
        }
    }
    return seat;
}

/* --- modes --- */

static int64_t package_of(const char *root, size_t cpu)
{
    char path[SYS_PATH_SIZE];
    (void)snprintf(path, sizeof path, "devices/system/cpu/cpu%zu/topology/physical_package_id",
                   cpu);
    return read_sys_number(root, path, 0);
}

static void socket_cpus(const char *root,
                        const struct seat *seat,
                        const struct mst__cpu_set *allowed,
                        struct mst__cpu_set *ret_cpus)
{
    int64_t nodes[NODES_MAX];
    struct mst__cpu_set cpus;
    size_t count = list_nodes(root, allowed, nodes);
    node_cpus(root, seat->node, allowed, ret_cpus);
    size_t first = set_first(ret_cpus);
    if (first == MST_CPUS_MAX) {
        return;
    }
    int64_t package = package_of(root, first);
    for (size_t i = 0; i < count; i++) {
        node_cpus(root, nodes[i], allowed, &cpus);
        size_t other = set_first(&cpus);
        if (other < MST_CPUS_MAX && package_of(root, other) == package) {
            set_or(ret_cpus, &cpus);
        }
    }
}

/* The hardware threads of the core of @cpu. */
static void core_cpus(const char *root, size_t cpu, struct mst__cpu_set *ret_set)
{
    char path[SYS_PATH_SIZE];
    (void)snprintf(path, sizeof path, "devices/system/cpu/cpu%zu/topology/thread_siblings_list",
                   cpu);
    if (!read_sys_cpus(root, path, ret_set)) {
        mst__cpu_set_add(ret_set, cpu);
    }
}

static size_t count_cores(const char *root, const struct mst__cpu_set *cpus)
{
    struct mst__cpu_set rest = *cpus;
    struct mst__cpu_set core;
    size_t count = 0;
    for (size_t cpu = set_first(&rest); cpu < MST_CPUS_MAX; cpu = set_first(&rest)) {
        core_cpus(root, cpu, &core);
        mst__cpu_set_add(&core, cpu);
        for (size_t i = 0; i < MST_CPUS_MAX / 64; i++) {
            rest.words[i] &= ~core.words[i];
        }
        count++;
    }
    return count;
}

/* Split the cores of the node evenly; the first workers get the remainder. Returns false if there
 * are too few. */
static bool exclusive_cpus(const char *root, const struct seat *seat, struct mst__cpu_set *cpus)
{
    size_t cores = count_cores(root, cpus);
    size_t workers = (size_t)seat->count;
    size_t index = (size_t)seat->index;
    if (workers == 0 || cores < workers) {
        return false;
    }
    size_t share = cores / workers;
    size_t extra = cores % workers;
    size_t begin = index * share + (index < extra ? index : extra);
    size_t end = begin + share + (index < extra ? 1 : 0);
    struct mst__cpu_set rest = *cpus;
    struct mst__cpu_set made = {0};
    struct mst__cpu_set core;
    for (size_t i = 0; i < end; i++) {
        size_t cpu = set_first(&rest);
        core_cpus(root, cpu, &core);
        mst__cpu_set_add(&core, cpu);
        if (i >= begin) {
            set_or(&made, &core);
        }
        for (size_t j = 0; j < MST_CPUS_MAX / 64; j++) {
            rest.words[j] &= ~core.words[j];
        }
    }
    set_and(&made, cpus);
    *cpus = made;
    return true;
}

/* CPUs that share the last-level data cache with @cpu. */
static void cache_cpus(const char *root, size_t cpu, struct mst__cpu_set *ret_set)
{
    int64_t level_max = -1;
    *ret_set = (struct mst__cpu_set){0};
    for (int index = 0; index < CACHE_INDEXES_MAX; index++) {
        char path[SYS_PATH_SIZE];
        char type[32];
        struct mst__cpu_set shared;
        (void)snprintf(path, sizeof path, "devices/system/cpu/cpu%zu/cache/index%d/type", cpu,
                       index);
        (void)read_sys(root, path, type, sizeof type);
        if (strcmp(type, "Data") != 0 && strcmp(type, "Unified") != 0) {
            continue;
        }
        (void)snprintf(path, sizeof path, "devices/system/cpu/cpu%zu/cache/index%d/level", cpu,
                       index);
        int64_t level = read_sys_number(root, path, 0);
        (void)snprintf(path, sizeof path, "devices/system/cpu/cpu%zu/cache/index%d/shared_cpu_list",
                       cpu, index);
        if (level > level_max && read_sys_cpus(root, path, &shared)) {
            level_max = level;
            *ret_set = shared;
        }
    }
    mst__cpu_set_add(ret_set, cpu);
}

/* Choose one of the groups of CPUs that share a cache: number index modulo their count. Larger
 * groups come first, then those with lower CPUs. */
static void complex_cpus(const char *root, const struct seat *seat, struct mst__cpu_set *cpus)
{
    size_t firsts[MST_CPUS_MAX];
    size_t sizes[MST_CPUS_MAX];
    size_t count = 0;
    struct mst__cpu_set rest = *cpus;
    struct mst__cpu_set group;
    for (size_t cpu = set_first(&rest); cpu < MST_CPUS_MAX; cpu = set_first(&rest)) {
        cache_cpus(root, cpu, &group);
        set_and(&group, cpus);
        size_t size = mst__cpu_set_count(&group);
        size_t at = count++;
        for (; at > 0 && sizes[at - 1] < size; at--) {
            sizes[at] = sizes[at - 1];
            firsts[at] = firsts[at - 1];
        }
        sizes[at] = size;
        firsts[at] = cpu;
        for (size_t j = 0; j < MST_CPUS_MAX / 64; j++) {
            rest.words[j] &= ~group.words[j];
        }
    }
    if (count > 0) {
        cache_cpus(root, firsts[(size_t)seat->index % count], &group);
        set_and(cpus, &group);
    }
}

int mst__numa_cpus(const char *root,
                   enum mst__numa_mode mode,
                   int64_t local_rank,
                   int64_t nproc,
                   const struct mst__cpu_set *allowed,
                   struct mst__cpu_set *ret_cpus,
                   struct mst_err *reterr)
{
    if (mode == MST_NUMA_OFF) {
        *ret_cpus = *allowed;
        return 0;
    }
    struct seat seat = find_seat(root, local_rank, nproc, allowed);
    struct mst__cpu_set cpus;
    node_cpus(root, seat.node, allowed, &cpus);
    if (mode == MST_NUMA_SOCKET) {
        socket_cpus(root, &seat, allowed, &cpus);
    } else if (mode == MST_NUMA_EXCLUSIVE && mst__cpu_set_count(&cpus) > 0) {
        if (!exclusive_cpus(root, &seat, &cpus)) {
            return mst__fail(reterr, MST_EINVAL, 0,
                             "--numa-binding exclusive: NUMA node %" PRId64
                             " has fewer cores than its %" PRId64 " workers",
                             seat.node, seat.count);
        }
    } else if (mode == MST_NUMA_CORE_COMPLEX) {
        complex_cpus(root, &seat, &cpus);
    }
    if (mst__cpu_set_count(&cpus) == 0) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "--numa-binding: none of the CPUs of NUMA node %" PRId64
                         " may be used by local rank %" PRId64,
                         seat.node, local_rank);
    }
    *ret_cpus = cpus;
    return 0;
}
