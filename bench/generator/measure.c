/* bench/generator/measure.c - the server's CPU time and memory, the latency histogram. */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"
#include "bench/generator/bench.h"

int mst__bench_cpu_ns(pid_t pid, int64_t *ret_ns, struct mst_err *reterr)
{
    clockid_t clock;
    struct timespec used;
    /* The clock of the process; /proc counts in ticks of ten milliseconds. */
    int error = clock_getcpuclockid(pid, &clock);
    if (error == 0 && clock_gettime(clock, &used) != 0) {
        error = errno;
    }
    if (error != 0) {
        return mst__fail(reterr, MST_ESYS, error, "CPU time of the server, process %d", (int)pid);
    }
    *ret_ns = (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
    return 0;
}

int mst__bench_rss(pid_t pid, int64_t *ret_bytes, struct mst_err *reterr)
{
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return mst__fail(reterr, MST_ESYS, errno, "memory of the server, open '%s'", path);
    }
    char line[200];
    bool got = fgets(line, sizeof line, file) != NULL;
    (void)fclose(file); /* It was only read. */
    char *second = NULL;
    if (got) {
        (void)strtoll(line, &second, 10); /* the address space, which is irrelevant */
    }
    if (second == NULL || second == line) {
        return mst__fail(reterr, MST_ESYS, 0, "memory of the server, read '%s'", path);
    }
    *ret_bytes = (int64_t)strtoll(second, NULL, 10) * (int64_t)sysconf(_SC_PAGESIZE);
    return 0;
}

static size_t histogram_index(uint64_t ns)
{
    if (ns < MST_BENCH_HISTOGRAM_STEPS) {
        return (size_t)ns;
    }
    unsigned doubling = 63U - (unsigned)__builtin_clzll(ns); /* at least 6 */
    size_t step = (size_t)(ns >> (doubling - 6)) % MST_BENCH_HISTOGRAM_STEPS;
    return (size_t)(doubling - 5) * MST_BENCH_HISTOGRAM_STEPS + step;
}

void mst__bench_histogram_add(struct mst__bench_histogram *histogram, int64_t ns)
{
    MST_ASSERT(ns >= 0);
    size_t index = histogram_index((uint64_t)ns);
    MST_ASSERT(index < MST_BENCH_HISTOGRAM_SIZE);
    histogram->counts[index]++;
    histogram->count++;
    if (ns > histogram->max_ns) {
        histogram->max_ns = ns;
    }
}

/* The middle of a slot. */
static int64_t histogram_value(size_t index)
{
    if (index < MST_BENCH_HISTOGRAM_STEPS) {
        return (int64_t)index;
    }
    unsigned doubling = (unsigned)(index / MST_BENCH_HISTOGRAM_STEPS) + 5;
    uint64_t width = UINT64_C(1) << (doubling - 6);
    uint64_t low = (MST_BENCH_HISTOGRAM_STEPS + index % MST_BENCH_HISTOGRAM_STEPS) * width;
    return (int64_t)(low + width / 2);
}

int64_t mst__bench_histogram_at(const struct mst__bench_histogram *histogram, double share)
{
    uint64_t wanted = (uint64_t)((double)histogram->count * share);
    uint64_t seen = 0;
    for (size_t i = 0; i < MST_BENCH_HISTOGRAM_SIZE; i++) {
        seen += histogram->counts[i];
        if (seen > 0 && seen >= wanted) {
            int64_t value = histogram_value(i);
            return value < histogram->max_ns ? value : histogram->max_ns;
        }
    }
    return histogram->max_ns;
}
